import pytest
import torch
from torch import nn

from interlingua.errors import BadInput
from interlingua.training.optimizer import LossScale, Optimizer, OptimizerSpec


def test_rate_rises_then_falls_to_zero():
    optimizer = Optimizer([nn.Linear(2, 2)], OptimizerSpec(lr=1.0, warmup=4), 12)
    rates = [optimizer.rate(step) for step in range(12)]
    assert rates[:4] == [0.25, 0.5, 0.75, 1.0]
    assert rates[4] == 1.0
    assert rates[11] == pytest.approx(1 / 8)
    assert optimizer.rate(12) == 0.0
    assert Optimizer([nn.Linear(2, 2)], OptimizerSpec(lr=1.0, schedule="constant"), 3).rate(2) == 1.0


def test_equals_adamw_with_clipping():
    torch.manual_seed(0)
    ours, theirs = nn.Linear(3, 2), nn.Linear(3, 2)
    theirs.load_state_dict(ours.state_dict())
    optimizer = Optimizer([ours], OptimizerSpec(lr=0.1, clip=0.5, schedule="constant", weight_decay=0.01), 5)
    reference = torch.optim.AdamW(
        [{"params": [theirs.weight], "weight_decay": 0.01}, {"params": [theirs.bias], "weight_decay": 0.0}], lr=0.1
    )
    for step in range(5):
        x = torch.randn(4, 3)
        for module in (ours, theirs):
            module(x).pow(2).sum().backward()
        torch.nn.utils.clip_grad_norm_(theirs.parameters(), 0.5)
        reference.step()
        reference.zero_grad()
        optimizer.step(step)
    torch.testing.assert_close(ours.weight, theirs.weight)
    torch.testing.assert_close(ours.bias, theirs.bias)


def test_sparse_embeddings_change_only_the_rows_of_the_batch():
    bag = nn.EmbeddingBag(10, 4, sparse=True)
    before = bag.weight.detach().clone()
    optimizer = Optimizer([bag], OptimizerSpec(lr=0.1, clip=1.0), 10)
    bag(torch.tensor([[1, 3, 3]])).sum().backward()
    norm = optimizer.step(0)
    moved = (bag.weight - before).abs().sum(1) > 0
    assert moved.nonzero().flatten().tolist() == [1, 3]
    assert norm == pytest.approx((torch.tensor([1 / 3, 2 / 3]).repeat(4)).norm().item(), rel=1e-5)


def test_state_returns_bit_for_bit():
    def run(steps, saved=None, at=None):
        torch.manual_seed(0)
        module = nn.Sequential(nn.EmbeddingBag(10, 4, sparse=True), nn.Linear(4, 2))
        optimizer = Optimizer([module], OptimizerSpec(lr=0.1), 20)
        if saved is not None:
            module.load_state_dict(saved[0])
            optimizer.load(*saved[1])
        for step in range(at or 0, steps):
            module(torch.tensor([[step % 10, 3]])).pow(2).sum().backward()
            optimizer.step(step)
        return module.state_dict(), optimizer.state()

    whole = run(8)
    state, (tensors, numbers) = run(5)
    half = {k: v.clone() for k, v in state.items()}, ({k: v.clone() for k, v in tensors.items()}, numbers)
    resumed = run(8, half, 5)
    assert all(torch.equal(whole[0][k], resumed[0][k]) for k in whole[0])


def test_a_loss_scale_is_taken_out_of_the_gradients_before_they_are_clipped():
    torch.manual_seed(0)
    plain, scaled = nn.Linear(3, 2), nn.Linear(3, 2)
    scaled.load_state_dict(plain.state_dict())
    spec, scale, x = OptimizerSpec(lr=0.1, clip=0.5), LossScale(), torch.randn(4, 3)
    plain(x).pow(2).sum().backward()
    (scaled(x).pow(2).sum() * scale.value).backward()
    assert Optimizer([scaled], spec, 5, scale).step(0) == pytest.approx(Optimizer([plain], spec, 5).step(0))
    torch.testing.assert_close(scaled.weight, plain.weight)


def test_a_step_that_overflows_changes_nothing_but_the_scale():
    module = nn.Linear(2, 2)
    before, scale = module.weight.detach().clone(), LossScale(8.0)
    optimizer = Optimizer([module], OptimizerSpec(), 9, scale)
    module.weight.grad, module.bias.grad = torch.full((2, 2), torch.inf), torch.ones(2)
    assert not torch.isfinite(torch.tensor(optimizer.step(0)))
    assert torch.equal(module.weight, before)
    assert optimizer.state() == ({}, {})
    assert module.bias.grad is None
    assert scale == LossScale(4.0)


def test_the_scale_grows_after_sound_steps_and_an_overflow_at_one_is_an_error():
    scale = LossScale(4.0, patience=3)
    for _ in range(3):
        scale.update(True)
    assert scale == LossScale(8.0, patience=3)
    scale.update(True)
    for _ in range(3):
        scale.update(False)
    assert scale == LossScale(1.0, patience=3)
    with pytest.raises(BadInput, match="overflow in float16 at any loss scale"):
        scale.update(False)
