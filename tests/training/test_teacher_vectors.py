"""A teacher's vectors are computed once, survive a kill, and are cut to the student's size."""

import json
import logging
import queue
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch

from interlingua.errors import BadInput, Damaged, InterlinguaError
from interlingua.models.dual import DualEncoder
from interlingua.models.encoder import Encoder
from interlingua.models.folder import PROBE
from interlingua.models.language_maps import LanguageMap, LanguageMaps
from interlingua.training import teacher as teacher_vectors
from interlingua.training.processes import Processes
from interlingua.training.teacher import TeacherSpec, TeacherVectors, learn_from, principal_axes

TEXTS = [f"text {number} of {number % 7} rivers" for number in range(40)]


class Teacher:
    """A real encoder that counts the texts it reads, and stops after `most` calls."""

    def __init__(self, encoder, most=99):
        self.encoder, self.read, self.most = encoder, [], most
        self.dim = encoder.dim

    def encode_document(self, texts, **options):
        if texts != list(PROBE):
            self.most -= 1
            if self.most < 0:
                raise KeyboardInterrupt
            self.read += texts
        return self.encoder.encode_document(texts, **options)

    encode_query = encode_document


@pytest.fixture
def teacher(tiny_static):
    return Teacher(DualEncoder.tied(tiny_static(seed=5)))


def test_each_text_is_read_once_and_found_again(tmp_path, teacher):
    TeacherVectors.build(tmp_path / "kept", teacher, [*TEXTS, *TEXTS])
    assert sorted(teacher.read) == sorted(TEXTS)
    vectors = TeacherVectors(tmp_path / "kept", teacher.dim)
    asked = [TEXTS[7], TEXTS[3], TEXTS[7]]
    np.testing.assert_allclose(vectors(asked).numpy(), teacher.encoder.encode_document(asked), atol=2e-3)
    with pytest.raises(InterlinguaError, match="was not asked for the text 'another'"):
        vectors(["another"])
    TeacherVectors.build(tmp_path / "kept", teacher, reversed(TEXTS))
    assert len(teacher.read) == len(TEXTS)


def test_a_killed_computation_goes_on(tmp_path, teacher, monkeypatch):
    monkeypatch.setattr(teacher_vectors, "BLOCK", 16)
    teacher.most = 2
    with pytest.raises(KeyboardInterrupt):
        TeacherVectors.build(tmp_path / "kept", teacher, TEXTS)
    assert json.loads((tmp_path / "kept/teacher.json").read_text())["done"] == 32
    read = len(teacher.read)
    teacher.most = 99
    TeacherVectors.build(tmp_path / "kept", teacher, TEXTS)
    assert read == 32
    assert not set(teacher.read[:read]) & set(teacher.read[read:])
    kept = TeacherVectors(tmp_path / "kept", teacher.dim)
    np.testing.assert_allclose(kept(TEXTS).numpy(), teacher.encoder.encode_document(TEXTS), atol=2e-3)


def test_damaged_vectors_are_named_and_made_anew(tmp_path, teacher):
    about = TeacherVectors.build(tmp_path, teacher, TEXTS)
    for file, content in (("teacher.json", '{"done": 4'), ("keys.npy", ""), ("vectors.npy", "none")):
        (tmp_path / file).write_text(content, encoding="utf-8")
        with pytest.raises(Damaged, match="vectors are damaged"):
            TeacherVectors(tmp_path, teacher.dim)
        (tmp_path / "teacher.json").write_text("[]", encoding="utf-8")
        assert TeacherVectors.build(tmp_path, teacher, TEXTS) == about
        assert TeacherVectors(tmp_path, teacher.dim).about == about


def test_another_teacher_or_other_texts_start_anew(tmp_path, teacher, tiny_static):
    TeacherVectors.build(tmp_path / "kept", teacher, TEXTS)
    other = Teacher(DualEncoder.tied(tiny_static(seed=6)))
    TeacherVectors.build(tmp_path / "kept", other, TEXTS)
    assert len(other.read) == len(TEXTS)
    TeacherVectors.build(tmp_path / "kept", other, TEXTS[:20])
    assert len(other.read) == len(TEXTS) + 20


def test_fewer_dimensions_are_the_principal_ones(tmp_path, teacher):
    TeacherVectors.build(tmp_path / "kept", teacher, TEXTS)
    whole = TeacherVectors(tmp_path / "kept", teacher.dim)(TEXTS).double()
    cut = TeacherVectors(tmp_path / "kept", 6)(TEXTS)
    centred = whole - whole.mean(0)
    _, _, axes = torch.linalg.svd(centred, full_matrices=False)
    wanted = torch.nn.functional.normalize(centred @ axes[:6].T, dim=1)
    torch.testing.assert_close((cut @ cut.T).double(), wanted @ wanted.T, atol=1e-4, rtol=0)
    with pytest.raises(InterlinguaError, match="must have at least as many"):
        TeacherVectors(tmp_path / "kept", teacher.dim + 1)


def test_axes_have_one_sign():
    vectors = np.random.default_rng(0).normal(size=(50, 8)).astype(np.float32)
    _, axes = principal_axes(vectors, 3)
    _, mirrored = principal_axes(-vectors, 3)
    np.testing.assert_allclose(axes, mirrored, atol=1e-5)
    assert (axes[np.abs(axes).argmax(0), range(3)] > 0).all()


def test_a_kill_before_the_first_vectors_leaves_none_that_seem_whole(tmp_path, teacher, tiny_static):
    TeacherVectors.build(tmp_path, teacher, TEXTS)
    with pytest.raises(KeyboardInterrupt):
        TeacherVectors.build(tmp_path, Teacher(DualEncoder.tied(tiny_static(seed=6)), most=0), TEXTS)
    TeacherVectors.build(tmp_path, teacher, TEXTS)
    vectors = TeacherVectors(tmp_path, teacher.dim)(TEXTS)
    assert torch.allclose(vectors, torch.as_tensor(teacher.encoder.encode_document(TEXTS)), atol=1e-2)


def test_two_runs_at_once_compute_the_vectors_once(tmp_path, teacher, caplog, monkeypatch):
    begun, go_on, messages = threading.Event(), threading.Event(), queue.SimpleQueue()
    caplog.set_level(logging.INFO, "interlingua")
    monkeypatch.setattr(caplog.handler, "emit", lambda record: messages.put(record.getMessage()))  # it serves all tests
    encode = teacher.encode_document

    def slowly(texts, **options):
        if texts != list(PROBE):
            begun.set()
            assert go_on.wait(60)
        return encode(texts, **options)

    first = Teacher(teacher)
    first.encode_document = slowly
    second = Teacher(teacher.encoder)
    with ThreadPoolExecutor(2) as pool:
        one = pool.submit(TeacherVectors.build, tmp_path, first, TEXTS)
        assert begun.wait(60)
        other = pool.submit(TeacherVectors.build, tmp_path, second, TEXTS)
        try:
            assert "waiting" in messages.get(timeout=60)
        finally:
            go_on.set()
        one.result()
        other.result()
    assert sorted(teacher.read) == sorted(TEXTS)
    assert second.read == []


def test_vectors_in_use_stay_when_others_are_made(tmp_path, teacher, tiny_static):
    TeacherVectors.build(tmp_path, teacher, TEXTS)
    used = TeacherVectors(tmp_path, teacher.dim)
    before = used(TEXTS)
    TeacherVectors.build(tmp_path, Teacher(DualEncoder.tied(tiny_static(seed=6))), TEXTS[5:])
    assert torch.equal(used(TEXTS), before)


def test_whole_vectors_need_no_right_to_write(tmp_path, teacher):
    TeacherVectors.build(tmp_path / "kept", teacher, TEXTS)
    (tmp_path / "kept/writer.lock").unlink(missing_ok=True)
    TeacherVectors.build(tmp_path / "kept", teacher, TEXTS)
    assert not (tmp_path / "kept/writer.lock").exists()


def test_it_is_seen_when_another_run_has_replaced_them(tmp_path, teacher, tiny_static):
    made = TeacherVectors.build(tmp_path, teacher, TEXTS)
    assert TeacherVectors(tmp_path, teacher.dim).about == made == TeacherVectors.build(tmp_path, teacher, TEXTS)
    other = Teacher(DualEncoder.tied(tiny_static(seed=6)))
    assert TeacherVectors.build(tmp_path, other, TEXTS) != made
    assert TeacherVectors(tmp_path, teacher.dim).about != made

    class Meanwhile(Processes):
        def wait(self):
            TeacherVectors.build(tmp_path, other, TEXTS)

    teacher.encoder.save(tmp_path / "model")
    spec = TeacherSpec(model=str(tmp_path / "model"), vectors=str(tmp_path))
    with pytest.raises(InterlinguaError, match="put other vectors there"):
        learn_from(
            spec,
            lambda: [("passage", text) for text in TEXTS],
            teacher.dim,
            tmp_path,
            Meanwhile(0, 1, torch.device("cpu")),
        )
    (tmp_path / "teacher.json").unlink()  # as it is while others are made
    with pytest.raises(InterlinguaError, match="another run is just making others"):
        TeacherVectors(tmp_path, teacher.dim)


def test_questions_and_passages_are_read_each_in_its_role(tmp_path, teacher, monkeypatch):
    monkeypatch.setattr(teacher_vectors, "BLOCK", 3)
    teacher.encode_query = lambda texts, **options: -teacher.encoder.encode_document(texts, **options)
    titled = ("Nile", "a long river")
    given = [("query", "a"), ("passage", "a"), ("passage", titled), ("query", "b"), ("passage", "b")]
    TeacherVectors.build(tmp_path, teacher, given)
    vectors = TeacherVectors(tmp_path, teacher.dim)
    encode = teacher.encoder.encode_document
    np.testing.assert_allclose(vectors(["b", "a"], "query"), -encode(["b", "a"]), atol=2e-3)
    np.testing.assert_allclose(vectors(["a", titled]), encode(["a", titled]), atol=2e-3)
    with pytest.raises(InterlinguaError, match="not asked for the text 'Nile"):
        vectors([titled], "query")


def test_centred_vectors_spread_over_the_sphere(tmp_path, teacher):
    encode = teacher.encode_document
    teacher.encode_document = lambda texts, **options: encode(texts, **options) + 5
    TeacherVectors.build(tmp_path, teacher, TEXTS)
    crowded, centred = (TeacherVectors(tmp_path, teacher.dim, centre=which)(TEXTS) for which in (False, True))
    wanted = torch.nn.functional.normalize(crowded - crowded.mean(0), dim=1)
    torch.testing.assert_close(centred, wanted, atol=1e-4, rtol=0)
    assert (torch.nn.functional.normalize(crowded, dim=1) @ torch.ones(teacher.dim)).std() < 0.2
    assert centred.mean(0).norm() < 0.1


@pytest.mark.slow
def test_a_teacher_of_fewer_layers(tmp_path, tiny_encoder):
    whole = DualEncoder.tied(tiny_encoder(layers=2))
    whole.save(tmp_path / "model")
    one = Processes(0, 1, torch.device("cpu"))
    found = [
        learn_from(
            TeacherSpec(model=str(tmp_path / "model"), layers=layers),
            lambda: [("passage", text) for text in TEXTS],
            whole.dim,
            tmp_path / str(layers),
            one,
        )(TEXTS)
        for layers in (None, 1)
    ]
    cut = DualEncoder.tied(Encoder.load(tmp_path / "model", layer=1))
    np.testing.assert_allclose(found[0].numpy(), whole.encode_document(TEXTS), atol=2e-3)
    np.testing.assert_allclose(found[1].numpy(), cut.encode_document(TEXTS), atol=2e-3)
    assert not np.allclose(found[0].numpy(), found[1].numpy(), atol=1e-2)


def test_a_calibrated_teacher_is_refused(tmp_path, tiny_static):
    model = tiny_static()
    maps = {lang: LanguageMap(torch.zeros(model.dim), torch.ones(model.dim)) for lang in ("fi", "*")}
    model.language_maps = LanguageMaps(maps)
    model.save(tmp_path / "model")
    spec = TeacherSpec(model=str(tmp_path / "model"))
    with pytest.raises(BadInput, match="is calibrated by language"):
        learn_from(spec, lambda: [("passage", "text")], model.dim, tmp_path, Processes(0, 1, torch.device("cpu")))
