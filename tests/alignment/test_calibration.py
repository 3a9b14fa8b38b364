from __future__ import annotations

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from scipy.linalg import expm

from interlingua.alignment import Calibration
from interlingua.alignment.rotation import Adversarial, csls_matches
from interlingua.errors import InterlinguaError

DIM = 12


def turn(seed, strength):
    draw = np.random.default_rng(seed).normal(size=(DIM, DIM))
    return expm(strength * (draw - draw.T) / np.linalg.norm(draw - draw.T, 2))


@pytest.fixture(scope="module")
def clouds():
    """English, and French and German made from it: turned, moved, noised, in other orders. And Swahili: few texts."""
    rng = np.random.default_rng(0)
    english = rng.normal(size=(500, DIM))
    made = {"en": english + 2}
    for seed, lang in enumerate(("fr", "de")):
        noised = english + 0.05 * rng.normal(size=english.shape)
        made[lang] = (noised @ turn(seed, 0.5))[rng.permutation(500)] + rng.normal(size=DIM)
    made["sw"] = 3 * rng.normal(size=(20, DIM)) - 1
    return made


@pytest.fixture(scope="module")
def fitted(clouds):
    return Calibration.fit(clouds, scale=None)


@pytest.mark.parametrize("rotate", ["none", "refine"])
def test_each_language_has_mean_0_and_variance_1(clouds, rotate):
    calibration = Calibration.fit(clouds, rotate=rotate)
    for lang in ("en", "fr", "de"):
        mapped = calibration.transform(clouds[lang], lang)
        assert mapped.dtype == np.float32
        np.testing.assert_allclose(mapped.mean(axis=0), 0, atol=1e-5)
        rotation = calibration.of(lang).rotation
        turned_back = mapped if rotation is None else mapped @ rotation.numpy()
        np.testing.assert_allclose(turned_back.var(axis=0), 1, atol=1e-4)


@pytest.mark.slow
def test_each_step_is_what_it_says(clouds):
    x, mean, std = clouds["fr"], clouds["fr"].mean(axis=0), clouds["fr"].std(axis=0)
    for shift, scale, expected in (
        (True, None, x - mean),
        (False, "std", x / std),
        (False, None, x),
        (True, "none", x - mean),
        (True, "variance", (x - mean) / std**2),
    ):
        calibration = Calibration.fit(clouds, shift=shift, scale=scale, rotate=None)
        np.testing.assert_allclose(calibration.transform(x, "fr"), expected, rtol=1e-3, atol=1e-5)
        steps = ["raw", *["shift"] * shift, *["scale"] * (scale not in (None, "none"))]
        assert list(calibration.report["fr"].criterion) == steps


@pytest.mark.parametrize("shift", [False, True])
def test_removal_takes_out_the_first_components_of_each_language(clouds, shift):
    calibration = Calibration.fit(clouds, shift=shift, scale=None, rotate=None, remove=2)
    for lang in ("en", "fr"):
        x = np.asarray(clouds[lang], np.float32)
        components = np.linalg.svd(x.astype(np.float64), full_matrices=False)[2][:2]
        expected = np.array([row - sum((row @ c) * c for c in components) for row in x])
        expected -= expected.mean(axis=0) if shift else 0
        np.testing.assert_allclose(calibration.transform(x, lang), expected, atol=2e-5)
    assert list(calibration.report["fr"].criterion) == ["raw", "remove", *["shift"] * shift]
    assert "remove" in calibration.table().splitlines()[0]
    assert torch.equal(calibration.of(None).rotation or torch.eye(DIM), torch.eye(DIM))


def test_removal_brings_together_languages_that_lie_apart():
    rng = np.random.default_rng(1)
    english = rng.normal(size=(300, DIM))
    apart = {lang: english + 6 * direction for lang, direction in zip(("en", "fr"), np.eye(DIM)[:2], strict=True)}
    found = Calibration.fit(apart, shift=False, scale=None, rotate=None, remove=1)
    before, after = (
        csls_matches(*(side.astype(np.float32) for side in sides)).csls.mean()
        for sides in (
            (apart["fr"], apart["en"]),
            (found.transform(apart["fr"], "fr"), found.transform(apart["en"], "en")),
        )
    )
    assert after > before
    gains = [
        (np.asarray(x) @ np.asarray(y).T).argmax(1)
        for x, y in (
            (apart["fr"], apart["en"]),
            (found.transform(apart["fr"], "fr"), found.transform(apart["en"], "en")),
        )
    ]
    assert (gains[1] == np.arange(300)).mean() > (gains[0] == np.arange(300)).mean()


def test_rotation_brings_languages_to_the_pivot_and_so_to_each_other(clouds, fitted):
    english = fitted.transform(clouds["en"], "en")
    np.testing.assert_allclose(english, clouds["en"] - clouds["en"].mean(axis=0), atol=1e-5)
    for seed, lang in enumerate(("fr", "de")):
        rotation = fitted.of(lang).rotation.double().numpy()
        np.testing.assert_allclose(rotation @ rotation.T, np.eye(DIM), atol=1e-6)
        np.testing.assert_allclose(rotation, turn(seed, 0.5), atol=0.03)
        steps = fitted.report[lang]
        assert steps.criterion["rotate"] > steps.criterion["shift"] + 0.03
        assert steps.criterion["rotate"] > 0.99
        assert steps.rounds >= 1
        assert 0 < steps.pairs <= 400
    french, german = (fitted.transform(clouds[lang], lang) for lang in ("fr", "de"))
    before = csls_matches(*(clouds[lang] - clouds[lang].mean(axis=0) for lang in ("fr", "de"))).csls.mean()
    assert csls_matches(french, german).csls.mean() > before + 0.03


def test_the_report_measures_the_step_it_names(clouds):
    calibration = Calibration.fit({lang: clouds[lang] for lang in ("en", "fr")}, scale="std")
    steps = calibration.report["fr"]
    raw = csls_matches(clouds["fr"], clouds["en"]).cosines
    scaled = [(clouds[lang] - clouds[lang].mean(axis=0)) / clouds[lang].std(axis=0) for lang in ("fr", "en")]
    # a fifth of the texts stands for all of them
    assert steps.criterion["raw"] == pytest.approx(float(raw.mean()), abs=3 * float(raw.std()) / 10)
    found = csls_matches(*scaled)
    for values, measured in ((found.cosines, steps.criterion), (found.csls, steps.csls)):
        assert measured["scale"] == pytest.approx(float(values.mean()), abs=3 * float(values.std()) / 10)
    assert calibration.report["en"].note == "the pivot"


@pytest.mark.parametrize("seed", range(6))
def test_unrelated_texts_are_not_rotated(seed):
    rng = np.random.default_rng(seed)
    calibration = Calibration.fit({lang: rng.normal(size=(200, 32)) for lang in ("en", "fi")})
    assert calibration.of("fi").rotation is None
    steps = calibration.report["fi"]
    assert steps.criterion["rotate"] == steps.criterion["scale"]
    assert "not rotated" in steps.note
    assert "not rotated" in calibration.table()


def test_fewer_matches_than_dimensions_leave_a_language_unrotated():
    rng = np.random.default_rng(0)
    english = rng.normal(size=(60, 49))
    calibration = Calibration.fit({"en": english, "fi": english + 0.1 * rng.normal(size=(60, 49))})
    assert calibration.of("fi").rotation is None
    assert calibration.report["fi"].note == "not rotated: fewer pairs matched than the 49 dimensions"


def test_pairs_give_the_rotation_where_they_are_asked_for(clouds):
    rng = np.random.default_rng(2)
    english, truth = rng.normal(size=(300, DIM)), turn(9, 3.0)
    some = {"en": english, "fr": english @ truth}
    pairs = {"fra": (torch.tensor(some["fr"][:100]), some["en"][:100])}
    calibration = Calibration.fit(some, scale=None, rotate="supervised", pairs=pairs)
    np.testing.assert_allclose(calibration.transform(some["fr"], "fr"), english - english.mean(axis=0), atol=1e-5)
    assert (calibration.report["fr"].pairs, calibration.report["fr"].rounds) == (100, 0)
    with pytest.raises(InterlinguaError, match="needs pairs of 'fr' and 'en'"):
        Calibration.fit(some, rotate="supervised", pairs={"de": pairs["fra"]})
    with pytest.raises(InterlinguaError, match="Leave them out"):
        Calibration.fit(some, pairs=pairs)
    with pytest.raises(InterlinguaError, match=r"pairs of fr: vectors of shapes \(2, 12\) and \(3, 12\)"):
        Calibration.fit(some, rotate="supervised", pairs={"fr": (english[:2], english[:3])})


@pytest.mark.slow
def test_adversarial_is_followed_by_refinement(clouds):
    options = Adversarial(n_epochs=1, epoch_size=640, hidden=16)
    some = {lang: clouds[lang] for lang in ("en", "fr")}
    one, two = (Calibration.fit(some, scale=None, rotate="adversarial", adversarial=options) for _ in range(2))
    assert one.report["fr"].criterion["rotate"] > one.report["fr"].criterion["shift"] + 0.03
    assert one.report["fr"].rounds >= 1
    torch.testing.assert_close(one.of("fr").rotation, two.of("fr").rotation, rtol=0, atol=0)
    assert one.report["fr"].note.startswith("adversarial: criterion ")


def test_without_the_gate_a_rotation_that_helps_nobody_is_taken_and_said():
    """Unrelated texts: nothing can be found, and the paper's protocol rotates all the same."""
    rng = np.random.default_rng(6)
    some = {"en": rng.normal(size=(200, DIM)), "fr": rng.normal(size=(200, DIM))}
    options = Adversarial(n_epochs=1, epoch_size=320, hidden=8)
    kept, taken = (
        Calibration.fit(some, rotate="adversarial", adversarial=options, gate=gate, seed=1) for gate in (True, False)
    )
    assert kept.of("fr").rotation is None
    assert "; not rotated: " in kept.report["fr"].note
    rotation = taken.of("fr").rotation
    assert not torch.equal(rotation, torch.eye(DIM))
    assert "taken: epoch 1" in taken.report["fr"].note
    assert "not rotated" not in taken.report["fr"].note


def test_one_seed_one_calibration(clouds, fitted):
    again = Calibration.fit(clouds, scale=None)
    other = Calibration.fit(clouds, scale=None, seed=1)
    assert again.report == fitted.report
    for lang in ("fr", "de"):
        assert torch.equal(again.of(lang).rotation, fitted.of(lang).rotation)
    assert not torch.equal(other.of("fr").rotation, fitted.of("fr").rotation)
    assert torch.equal(other.of("fr").shift, fitted.of("fr").shift)


def test_few_texts_get_their_mean_and_the_pivots_scale(clouds, capsys):
    calibration = Calibration.fit(clouds)
    assert "sw: 20 texts, fewer than 50" in capsys.readouterr().err
    np.testing.assert_allclose(
        calibration.transform(clouds["sw"], "sw"),
        (clouds["sw"] - clouds["sw"].mean(axis=0)) / clouds["en"].std(axis=0),
        atol=1e-4,
    )
    assert "fewer than 50" in calibration.report["sw"].note


def test_any_language_takes_all_together_each_weighing_the_same(clouds):
    calibration = Calibration.fit(clouds, rotate=None)
    equal = np.concatenate([np.repeat(cloud, 500 // len(cloud), axis=0) for cloud in clouds.values()])
    expected = (clouds["fr"] - equal.mean(axis=0)) / equal.std(axis=0)
    np.testing.assert_allclose(calibration.transform(clouds["fr"], None), expected, atol=1e-4)
    np.testing.assert_allclose(calibration.transform(clouds["fr"], "*"), expected, atol=1e-4)


def test_a_language_that_was_not_fitted_is_an_error_here(clouds, fitted):
    np.testing.assert_array_equal(fitted.transform(clouds["fr"], "fr-CA"), fitted.transform(clouds["fr"], "fr"))
    np.testing.assert_array_equal(fitted.transform(clouds["fr"], "fra"), fitted.transform(clouds["fr"], "fr"))
    with pytest.raises(InterlinguaError, match=r"'fren'\. Did you mean 'fr'"):
        fitted.transform(clouds["fr"], "fren")
    with pytest.raises(InterlinguaError, match=r"no calibration was fitted for the language 'fi'\. Known: de, en"):
        fitted.transform(clouds["fr"], "fi")


def test_fold_is_transform(clouds, fitted):
    for lang in ("fr", "en", "sw", None):
        weight, bias = fitted.fold(lang)
        np.testing.assert_allclose(clouds["fr"] @ weight.T + bias, fitted.transform(clouds["fr"], lang), atol=1e-5)


def test_tensors_give_tensors(clouds, fitted):
    mapped = fitted.transform(torch.tensor(clouds["fr"]).half(), "fr")
    assert mapped.dtype == torch.float32
    np.testing.assert_allclose(mapped.numpy(), fitted.transform(clouds["fr"], "fr"), atol=0.01)


def test_saved_and_loaded_it_is_the_same(clouds, fitted, tmp_path):
    fitted.save(tmp_path / "c.safetensors")
    again = Calibration.load(tmp_path / "c.safetensors")
    assert (again.pivot, again.report) == (fitted.pivot, fitted.report)
    for lang in ("en", "fr", "de", "sw", None):
        np.testing.assert_array_equal(again.transform(clouds["de"], lang), fitted.transform(clouds["de"], lang))


def test_files_that_hold_no_calibration_are_named(fitted, tmp_path):
    path = tmp_path / "c.safetensors"
    with pytest.raises(InterlinguaError, match=r"c\.safetensors: cannot be read as a calibration"):
        Calibration.load(path)
    path.write_bytes(b"not a tensor in sight")
    with pytest.raises(InterlinguaError, match="cannot be read as a calibration"):
        Calibration.load(path)
    save_file({"weight": torch.ones(3)}, path)
    with pytest.raises(InterlinguaError, match="cannot be read as a calibration"):
        Calibration.load(path)
    fitted.save(path)
    tensors = load_file(path)
    save_file(tensors, path)
    with pytest.raises(InterlinguaError, match="description cannot be read"):
        Calibration.load(path)
    for damage, message in (
        ({"fr.shift": torch.ones(3)}, "the map of 'fr' is damaged .shift of shape"),
        ({"fr.rotation": torch.full((DIM, DIM), torch.nan)}, "rotation holds NaN"),
        ({"fr.scale": torch.zeros(DIM)}, "scale is not positive"),
    ):
        save_file(tensors | damage, path)
        with pytest.raises(InterlinguaError, match=message):
            Calibration.load(path)


def with_row(vectors, value):
    changed = vectors.copy()
    changed[7] = value
    return changed


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda c: {"fr": c["fr"]}, "no vectors of the pivot 'en'"),
        (lambda c: c | {"en": c["en"][:49]}, "the pivot 'en' has 49 texts; 50 at least"),
        (lambda c: c | {"fr": c["fr"][:, :5]}, "fr: vectors of size 5, those of the pivot 'en' have 12"),
        (lambda c: c | {"fr": c["fr"][0]}, r"fr: vectors of shape \(12,\); \[texts, dim\] is needed"),
        (lambda c: c | {"fr": c["fr"][:0]}, r"fr: vectors of shape \(0, 12\)"),
        (lambda c: c | {"fr": with_row(c["fr"], np.nan)}, "fr, row 7 .* holds NaN or infinity"),
        (lambda c: c | {"fr": with_row(c["fr"], 0)}, "fr, row 7 .* is zero"),
        (lambda c: c | {"fr": np.ones((60, DIM))}, "fr: all 60 vectors are equal"),
        (lambda c: c | {"fra": c["fr"]}, "'fra': the language 'fr' is given twice"),
        (lambda c: c | {"*": c["fr"]}, "means any language"),
    ],
)
def test_vectors_that_cannot_be_calibrated_are_named(clouds, change, message):
    with pytest.raises(InterlinguaError, match=message):
        Calibration.fit(change(clouds), rotate=None)


def test_steps_that_do_not_exist_are_named(clouds, fitted):
    with pytest.raises(InterlinguaError, match=r"scale='varianz' is unknown\. Did you mean 'variance'"):
        Calibration.fit(clouds, scale="varianz")
    with pytest.raises(InterlinguaError, match=r"rotate='refined' is unknown\. Did you mean 'refine'"):
        Calibration.fit(clouds, rotate="refined")
    with pytest.raises(InterlinguaError, match="remove=-1: give a number"):
        Calibration.fit(clouds, remove=-1)
    with pytest.raises(InterlinguaError, match=r"remove=12: .* has 500 vectors of size 12, of which nothing"):
        Calibration.fit(clouds, shift=False, scale=None, rotate=None, remove=DIM)
    for step in ({"scale": "std", "rotate": None}, {"scale": None, "rotate": "refine"}):
        with pytest.raises(InterlinguaError, match="remove=1 goes with the shift alone"):
            Calibration.fit(clouds, remove=1, **step)
    for bad, message in (
        (np.ones((2, 5)), "for vectors of size 12, these have 5"),
        (np.ones(12), "shape"),
        (np.full((2, 12), np.inf), "row 0"),
    ):
        with pytest.raises(InterlinguaError, match=message):
            fitted.transform(bad, "fr")
