"""Wu et al. 2022: the loss, its projection head and its memory bank."""

import math

import pytest
import torch
from torch.nn.functional import cosine_similarity

from interlingua.data.records import ContextPair
from interlingua.errors import InterlinguaError
from interlingua.objectives import ContextPrediction, context_prediction, semantic_contrastive
from interlingua.objectives.context_prediction import MemoryBank, ProjectionHead


def random(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def brute_force(centers, targets, bank, temperature, mask=None):
    both, windows = torch.cat([centers, targets]), len(centers)
    total = 0.0
    for c in range(2 * windows):
        exp = {
            k: math.exp(float(cosine_similarity(both[c], both[k], dim=0)) / temperature)
            for k in range(2 * windows)
            if k != c
        }
        past = sum(
            math.exp(float(cosine_similarity(both[c], entry, dim=0)) / temperature)
            for number, entry in enumerate(bank)
            if mask is None or not mask[c % windows][number]
        )
        total -= math.log(exp[(c + windows) % (2 * windows)] / (sum(exp.values()) + past))
    return total / (2 * windows)


@pytest.mark.parametrize("temperature", [0.1, 1.0])
def test_equals_the_loop(temperature):
    centers, targets, bank = random(4, 6), random(4, 6, seed=1), random(7, 6, seed=2)
    mask = random(4, 7, seed=3) > 0.5
    assert context_prediction(centers, targets, bank, temperature=temperature).item() == pytest.approx(
        brute_force(centers, targets, bank, temperature), rel=1e-5
    )
    assert context_prediction(centers, targets, bank, temperature=temperature, mask=mask).item() == pytest.approx(
        brute_force(centers, targets, bank, temperature, mask), rel=1e-5
    )
    whole = mask[0]
    assert context_prediction(centers, targets, bank, temperature=temperature, mask=whole).item() == pytest.approx(
        context_prediction(centers, targets, bank[~whole], temperature=temperature).item(), rel=1e-5
    )


def test_with_an_empty_bank_it_is_nt_xent():
    centers, targets = random(5, 6), random(5, 6, seed=1)
    for bank in (None, torch.empty(0, 6)):
        assert context_prediction(centers, targets, bank).item() == pytest.approx(
            semantic_contrastive(centers, targets).item(), rel=1e-6
        )


def test_all_alike_is_ln_of_the_candidates():
    loss = context_prediction(torch.ones(3, 4), torch.ones(3, 4), torch.ones(10, 4))
    assert loss.item() == pytest.approx(math.log(5 + 10), rel=1e-6)


def test_no_gradient_goes_into_the_bank_and_shapes_are_checked():
    centers, bank = random(3, 4).requires_grad_(), random(5, 4, seed=1).requires_grad_()
    context_prediction(centers, random(3, 4, seed=2), bank).backward()
    assert bank.grad is None
    assert centers.grad.abs().sum() > 0
    with pytest.raises(InterlinguaError, match="mask must be"):
        context_prediction(centers, centers, bank, mask=torch.zeros(4, 5, dtype=torch.bool))


# --- the head


def test_roles_change_places_and_only_one_branch_moves_the_statistics():
    head = ProjectionHead(4).double()
    a, b = random(6, 4).double(), random(6, 4, seed=1).double() + 5
    head(a, b)
    assert torch.allclose(head.running_mean, head.first(a).mean(0))
    before = head.running_mean.clone()
    head(a, b)
    assert torch.allclose(head.running_mean, before / 2 + head.first(b).mean(0) / 2)


@pytest.mark.parametrize(("norm", "leaks"), [("batch", True), ("asymmetric", False), ("none", False)])
def test_with_plain_batch_normalisation_a_vector_betrays_its_batch(norm, leaks):
    """Change the other rows of the batch: does a row of the second branch change? That is the leak."""
    centers, targets = random(4, 5), random(4, 5, seed=1)
    others = torch.cat([targets[:1], random(3, 5, seed=9)])
    changed = []
    for these in (targets, others):
        torch.manual_seed(0)
        changed.append(ProjectionHead(5, norm=norm)(centers, these)[1][0])
    assert torch.allclose(*changed, atol=1e-6) is not leaks


@pytest.mark.parametrize("calls", [0, 1])
def test_the_gradient_of_asymmetric_normalisation(calls):
    """Whichever branch trains. The running statistics are constants to the gradient, so they are held still here."""
    torch.manual_seed(0)
    head = ProjectionHead(3, 2, momentum=0.0).double()
    head(random(5, 3).double(), random(5, 3, seed=1).double())
    head.updates.fill_(10**15)

    def run(a, b):
        head.calls.fill_(calls)
        return head(a, b)

    inputs = random(4, 3, seed=70).double().requires_grad_(), random(4, 3, seed=71).double().requires_grad_()
    assert torch.autograd.gradcheck(run, inputs)


def test_the_second_branch_keeps_the_statistics_it_saw():
    """A later call moves the running statistics before this one's backward: the gradient must not notice."""

    def gradient(later):
        torch.manual_seed(0)
        head = ProjectionHead(3)
        head(random(5, 3), random(5, 3, seed=1))
        targets = random(5, 3, seed=3).requires_grad_()
        head.calls.zero_()
        loss = head(random(5, 3, seed=2), targets)[1].square().sum()
        if later:
            head(random(5, 3, seed=4) * 9, random(5, 3, seed=5) * 9)
        loss.backward()
        return targets.grad

    assert torch.equal(gradient(False), gradient(True))


def test_one_window_has_no_batch_statistics():
    with pytest.raises(InterlinguaError, match="at least 2 windows"):
        ProjectionHead(3)(random(1, 3), random(1, 3))
    ProjectionHead(3, norm="none")(random(1, 3), random(1, 3))
    ProjectionHead(3).eval()(random(1, 3), random(1, 3))


# --- the bank

CPU = torch.device("cpu")


def test_first_in_first_out_and_languages_never_mix():
    bank = MemoryBank(3)
    for number in range(5):
        bank.add("sw", torch.full((1, 2), float(number)), torch.tensor([number]))
    bank.add("fi", torch.full((2, 2), 9.0), torch.tensor([90, 91]))
    vectors, documents = bank.read("sw", CPU)
    assert sorted(documents.tolist()) == [2, 3, 4]
    assert sorted(vectors[:, 0].tolist()) == [2, 3, 4]
    assert bank.read("fi", CPU)[1].tolist() == [90, 91]
    assert len(bank.read("te", CPU)[0]) == 0
    assert sorted(bank.langs()) == ["fi", "sw"]
    bank.add("fi", random(7, 2), torch.arange(7))
    assert sorted(bank.read("fi", CPU)[1].tolist()) == [4, 5, 6]


def test_a_shared_bank_mixes_languages_and_half_precision_halves_memory():
    bank = MemoryBank(4, shared=True, dtype="float16")
    bank.add("sw", random(2, 2), torch.tensor([0, 1]))
    bank.add("fi", random(2, 2), torch.tensor([2, 3]))
    assert bank.read("te", CPU)[1].tolist() == [0, 1, 2, 3]
    assert bank.vectors_all.dtype == torch.float16
    assert bank.read("te", CPU)[0].dtype == torch.float32


def test_a_bank_in_total_holds_so_many_vectors_of_all_languages_and_a_language_reads_its_own():
    bank = MemoryBank(4, total=True)
    for number, lang in enumerate(["sw", "fi", "fi", "zh-TW", "sw", "fi"]):
        assert not bank.is_full(lang) or number >= 4
        bank.add(lang, torch.full((1, 2), float(number)), torch.tensor([number]))
    held = {lang: sorted(bank.read(lang, CPU)[1].tolist()) for lang in ("sw", "fi", "zh-TW", "te")}
    assert held == {"sw": [4], "fi": [2, 5], "zh-TW": [3], "te": []}  # the oldest of any language went first
    assert all((vectors[:, 0] == documents).all() for vectors, documents in [bank.read("fi", CPU)])
    assert bank.is_full("te")
    with pytest.raises(InterlinguaError, match="shared or in total"):
        MemoryBank(4, shared=True, total=True)
    with pytest.raises(InterlinguaError, match="bank_shared and bank_total do not go together"):
        ContextPrediction(dim=4, bank_shared=True, bank_total=True)
    with pytest.raises(InterlinguaError, match="at most 16 bytes"):
        bank.add("x" * 17, torch.ones(1, 2), torch.tensor([0]))
    objective = ContextPrediction(dim=4, bank=4, bank_total=True, bank_wait=True)
    for lang, first in (("sw", 0), ("fi", 20), ("sw", 40)):
        loss = objective.loss(pairs(lang, first), vectors(first))
        objective.after_step()
    assert loss.report["bank"] == 1  # of six sentences four are held, three of them Finnish
    assert loss.value.item() > 0


@pytest.mark.parametrize("total", [False, True])
def test_the_queues_of_a_checkpoint_are_put_back(total):
    bank = MemoryBank(3, total=total)
    bank.add("zh-TW", random(2, 4), torch.tensor([5, 6]))
    saved = bank.state_dict()
    fresh = MemoryBank(3, total=total)
    fresh.make_room({key: value.shape for key, value in saved.items()}, CPU)
    fresh.load_state_dict(saved)
    assert all(torch.equal(a, b) for a, b in zip(fresh.read("zh-TW", CPU), bank.read("zh-TW", CPU), strict=True))


# --- the objective


def pairs(lang, first, number=3):
    return {"contexts": [ContextPair(f"c{i}", f"t{i}", lang, i) for i in range(first, first + number)]}


def vectors(seed, number=3):
    return {"centers": random(number, 4, seed=seed), "targets": random(number, 4, seed=seed + 100)}


def test_a_batch_is_never_its_own_negative_and_waits_for_the_end_of_the_step():
    objective = ContextPrediction(dim=4, bank=8)
    for batch in (0, 10):  # two batches of one step
        assert objective.loss(pairs("sw", batch), vectors(batch)).report["bank"] == 0
    objective.after_step()
    assert sorted(objective.bank.read("sw", CPU)[1].tolist()) == [0, 1, 2, 10, 11, 12]
    norms = objective.bank.read("sw", CPU)[0].norm(dim=1)
    assert torch.allclose(norms, torch.ones(6))
    assert objective.loss(pairs("fi", 20), vectors(20)).report["bank"] == 0
    found = objective.loss(pairs("sw", 30), vectors(30)).report
    assert found["bank"] == 6
    assert found["ln_candidates"] == pytest.approx(math.log(5 + 6))


def test_sentences_of_the_same_document_are_no_negatives():
    def value(first, **options):
        torch.manual_seed(0)
        objective = ContextPrediction(dim=4, bank=8, batch_norm="none", **options)
        objective.loss(pairs("sw", 0), vectors(0))
        objective.after_step()
        return objective.loss(pairs("sw", first), vectors(5)).value.item()

    torch.manual_seed(0)
    alone = ContextPrediction(dim=4, bank=0, batch_norm="none").loss(pairs("sw", 0), vectors(5)).value.item()
    assert alone < value(0) < value(50)  # two of three entries are from other documents
    assert value(0, mask_documents=False) == pytest.approx(value(50))


def test_a_batch_in_two_languages_is_an_error_unless_the_bank_is_shared():
    mixed = {"contexts": pairs("sw", 0)["contexts"] + pairs("fi", 5)["contexts"]}
    with pytest.raises(InterlinguaError, match="one_language: true"):
        ContextPrediction(dim=4).requests(mixed)
    assert len(ContextPrediction(dim=4, bank_shared=True).requests(mixed)["centers"].texts) == 6


def test_a_loss_too_good_to_be_true_is_said():
    objective = ContextPrediction(dim=64, batch_norm="none", bank=0, temperature=0.01)
    same = {"centers": torch.eye(64)[:8] * 50, "targets": torch.eye(64)[:8] * 50}
    assert "something easier" in objective.loss(pairs("sw", 0, 8), same).warning
    assert (
        objective.loss(pairs("sw", 0), dict(zip(("centers", "targets"), random(2, 3, 64), strict=True))).warning is None
    )


def test_both_sentences_of_a_window_can_be_kept():
    objective = ContextPrediction(dim=4, bank=8, bank_holds="both")
    objective.loss(pairs("sw", 0), vectors(0))
    objective.after_step()
    assert sorted(objective.bank.read("sw", CPU)[1].tolist()) == [0, 0, 1, 1, 2, 2]


def test_a_bank_that_is_waited_for_gives_no_loss_until_it_is_full():
    objective = ContextPrediction(dim=4, bank=6, bank_wait=True)
    for held in (0, 3):
        given = vectors(held)
        waiting = objective.loss(pairs("sw", 0), given)
        assert waiting.value.item() == 0
        assert waiting.report["bank"] == held
        assert waiting.report["in_batch"] > 0
        objective.after_step()
    assert objective.loss(pairs("sw", 0), vectors(7)).value.item() > 0
    assert objective.loss(pairs("fi", 0), vectors(8)).value.item() == 0


def test_the_mean_free_gradient_has_no_common_part():
    def gradients(**options):
        torch.manual_seed(0)
        objective = ContextPrediction(dim=4, bank=8, batch_norm="none", **options)
        objective.head.first = objective.head.second = torch.nn.Identity()
        objective.loss(pairs("sw", 0), vectors(0))
        objective.after_step()
        leaves = {name: rows.abs().requires_grad_() for name, rows in vectors(5).items()}
        objective.loss(pairs("sw", 10), leaves).value.backward()
        return leaves["centers"].grad

    plain, free = gradients(), gradients(mean_free=True)
    assert plain.mean(0).abs().max() > 1e-3
    assert free.mean(0).abs().max() < 1e-6
    torch.testing.assert_close(free, plain - plain.mean(0))


def test_telling_sentences_from_the_bank_and_not_from_one_another_is_said():
    objective = ContextPrediction(dim=8, bank=64, batch_norm="none")
    objective.head.first = objective.head.second = torch.nn.Identity()
    one_way = torch.eye(8)[0].repeat(8, 1)
    objective.bank.add("sw", torch.eye(8)[1].repeat(64, 1), torch.arange(64) + 100)
    found = objective.loss(pairs("sw", 0, 8), {"centers": one_way, "targets": one_way.clone()})
    assert "not from one another" in found.warning
    assert found.report["in_batch"] == pytest.approx(math.log(15), abs=1e-3)
