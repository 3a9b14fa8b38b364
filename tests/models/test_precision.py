from __future__ import annotations

import copy
import json
import logging
import os
import shutil
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch.nn.functional import gelu

from interlingua import Index
from interlingua.cli import main
from interlingua.data.records import Passage
from interlingua.errors import BadInput, Stale
from interlingua.index import metadata, open_index
from interlingua.models.dual import DualEncoder
from interlingua.models.encode import on_processor
from interlingua.models.encoder import Encoder
from interlingua.models.folder import check, fingerprint
from interlingua.models.inference import int8, precision
from interlingua.models.inference.layers import Table
from interlingua.models.inference.light import LightEncoder
from interlingua.models.late_interaction import load_any

TEXTS = [
    "Where was Alan Turing born?",
    "",
    "Missä Alan Turing syntyi?",
    ("Turing", "Alan Turing was born in London and studied in Cambridge."),
    "Где родился Алан Тьюринг?",
    "Missä Alan Turing syntyi, ja missä hän opiskeli ennen kuin hän muutti?",
]
COSINE = {"float32": 0.999999, "bfloat16": 0.999, "int8": 0.99}
COSINE_AGAIN = {"float32": 0.999999, "int8": 0.9999}  # of a second load with the first


@pytest.fixture
def units(monkeypatch):
    """A processor that says it has bfloat16 units: torch computes bfloat16 on any."""
    monkeypatch.setattr(precision, "cpu_has_bfloat16", lambda: True)


@pytest.fixture
def saved(tiny_encoder, tmp_path):
    encoder = tiny_encoder(pooling="mean", prompts={"query": "query: ", "passage": "passage: "})
    encoder.save(tmp_path / "model")
    return tmp_path / "model"


def cosines(one, two):
    return (one * two).sum(1) / np.linalg.norm(one, axis=1) / np.linalg.norm(two, axis=1)


@pytest.mark.slow
@pytest.mark.parametrize("pooling", ["mean", "cls"])
@pytest.mark.parametrize("name", COSINE)
def test_vectors_agree_with_those_of_the_model_that_can_be_trained(name, pooling, saved, units):
    whole, small = Encoder.load(saved, pooling=pooling), Encoder.load(saved, pooling=pooling, precision=name)
    assert small.tokenize(TEXTS, "query") == whole.tokenize(TEXTS, "query")
    for role in ("query", "passage"):
        assert cosines(small.encode(TEXTS, role=role), whole.encode(TEXTS, role=role)).min() > COSINE[name]
    ids = whole.tokenize(TEXTS)
    for layer in (0, 1, 2):
        one, two = small.token_states(ids, layer), whole.token_states(ids, layer)
        assert torch.equal(one[1], two[1])
        for part in (0, 2):
            assert torch.cosine_similarity(one[part].float(), two[part]).mean() > COSINE[name]
    assert whole.encode(TEXTS[:1]).shape == small.encode(TEXTS[:1]).shape
    cut = [Encoder.load(saved, pooling=pooling, layer=1, precision=how).encode(TEXTS) for how in (None, name)]
    assert cosines(*cut).min() > COSINE[name]


@pytest.mark.parametrize("compiled", [True, False])
def test_a_text_has_the_same_int8_vector_beside_other_texts(compiled, saved, monkeypatch):
    if not compiled:
        monkeypatch.setattr("interlingua.models.inference.layers.kernel", lambda: None)
    small = Encoder.load(saved, precision="int8")
    together, alone = small.encode(TEXTS), np.stack([small.encode([text])[0] for text in TEXTS])
    assert np.abs(together - alone).max() < 1e-5


@pytest.mark.slow
@pytest.mark.parametrize(("heads", "size"), [(12, 32), (2, 64), (3, 17)])  # parts of a vector, one and several
def test_compiled_attention_is_that_of_torch(heads, size):
    if (compiled := int8.kernel()) is None:
        pytest.skip("numba is not here, or the processor has no AVX2")
    lengths = [1, 3, 16, 48, 49, 130]
    starts = np.cumsum([0, *lengths[:-1]])
    mixed = np.random.default_rng(0).normal(0, 1, (sum(lengths), 3 * heads * size)).astype(np.float32)
    found = np.full((len(mixed), heads * size), np.nan, np.float32)
    compiled.attend(mixed, found, heads, np.stack([starts, lengths], axis=1))
    for start, length in zip(starts, lengths, strict=True):
        text = torch.from_numpy(mixed[start : start + length]).view(length, 3, heads, size).transpose(0, 2)
        query, key, value = text.unbind(1)
        wanted = torch.nn.functional.scaled_dot_product_attention(query.double(), key.double(), value.double())
        assert np.abs(found[start : start + length] - wanted.transpose(0, 1).flatten(1).numpy()).max() < 1e-5


@pytest.mark.slow
def test_the_compiled_layers_compute_what_numpy_computes(saved, monkeypatch):
    if int8.kernel() is None:
        pytest.skip("numba is not here, or the processor has no AVX2")
    small = Encoder.load(saved, precision="int8")
    texts = [" ".join(TEXTS[:1] * count) for count in range(1, 9)] * 40  # tokens of several threads, and of odd tiles
    compiled = small.encode(texts)
    monkeypatch.setattr("interlingua.models.inference.layers.kernel", lambda: None)
    by_numpy = Encoder.load(saved, precision="int8").encode(texts)
    assert cosines(compiled, by_numpy).min() > 0.9999
    assert np.abs(compiled - by_numpy).max() < 0.02


@pytest.mark.parametrize(
    ("flags", "compiled"),
    [
        ({"avx2", "fma", "avx512_vnni"}, True),
        ({"avx2", "fma"}, True),
        ({"avx2"}, False),
        ({"asimd", "asimddp"}, False),
        (set(), False),  # as on other systems than Linux
    ],
)
def test_the_processors_that_have_a_kernel(flags, compiled, monkeypatch):
    monkeypatch.setattr(int8, "processor", lambda: frozenset(flags))
    monkeypatch.setattr(int8, "compiled_module", lambda *_: int8)  # numba is here
    found = int8.kernel.__wrapped__()
    assert found is (int8 if compiled else None)
    monkeypatch.setattr(precision, "processor", lambda: frozenset(flags))
    monkeypatch.setattr(precision, "kernel", lambda: found)
    assert precision.fastest() == ("int8" if compiled else "float32")


@pytest.mark.slow
def test_the_kernel_of_16_bits_computes_what_numpy_computes(saved, tmp_path, monkeypatch):
    if int8.kernel() is None:
        pytest.skip("numba is not here, or the processor has no AVX2")
    script = (
        "import sys; from interlingua.models.inference import machine; "
        "machine.processor = lambda: frozenset({'avx2', 'fma'}); "
        "from interlingua.models.encoder import Encoder; from interlingua.models.inference import int8; "
        f"found = Encoder.load(sys.argv[1], precision='int8').encode({TEXTS!r}); "
        "print(int8.kernel().BYTES, found.tobytes().hex())"
    )
    environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path / "numba")}
    said = subprocess.run(
        [sys.executable, "-c", script, str(saved)], env=environment, stdout=subprocess.PIPE, text=True, check=True
    ).stdout.split()
    assert said[0] == "False"
    monkeypatch.setattr("interlingua.models.inference.layers.kernel", lambda: None)
    by_numpy = Encoder.load(saved, precision="int8").encode(TEXTS)
    compiled = np.frombuffer(bytes.fromhex(said[1]), np.float32).reshape(by_numpy.shape)
    assert cosines(compiled, by_numpy).min() > 0.9999
    assert np.abs(compiled - by_numpy).max() < 0.02


@pytest.mark.parametrize(("inputs", "outputs"), [(4, 1), (64, 40), (1536, 384)])
def test_the_sums_of_a_compiled_layer_are_whole(inputs, outputs):
    compiled = int8.kernel()
    if compiled is None:
        pytest.skip("numba is not here, or the processor has no AVX2")
    draw = np.random.default_rng(inputs)
    weight = draw.choice(np.array([-127, 127], np.int8), (outputs, inputs))
    weight[0], scales = 127, np.ones(outputs, np.float32)
    layer = int8.Int8Linear(int8.Part(weight, scales, np.zeros(outputs, np.float32)))
    states = draw.choice(np.array([-127, 127], np.float32), (21, inputs))  # their scale is 1
    states[0], states[1] = 127, -127  # the largest sums there are
    out = np.full((21, outputs), np.nan, np.float32)
    compiled.project(states, layer.packed, out, 0, 21)
    assert np.array_equal(out, (states.astype(np.int64) @ weight.T.astype(np.int64)).astype(np.float32))


@pytest.mark.parametrize("count", [1, 8, 63, 65, 250, 256, 257, 321])
def test_a_compiled_layer_computes_what_numpy_computes(count):
    compiled, hidden, inner, first = int8.kernel(), 40, 72, 3  # 3 · 40 outputs are no whole panels
    if compiled is None:
        pytest.skip("numba is not here, or the processor has no AVX2")
    draw = np.random.default_rng(count)

    def numbers(*shape):
        return draw.standard_normal(shape).astype(np.float32)

    def layer(outputs, inputs):
        whole, scales = int8.rounded(numbers(outputs, inputs))
        return int8.Int8Linear(int8.Part(whole, scales, numbers(outputs)))

    def norm(rows, weight, bias):
        return (rows - rows.mean(1, keepdims=True)) / np.sqrt(rows.var(1, keepdims=True) + 1e-12) * weight + bias

    one, up, down = layer(hidden, hidden), layer(inner, hidden), layer(hidden, inner)
    following, norms = layer(3 * hidden, hidden), [int8.Norm(numbers(hidden), numbers(hidden)) for _ in range(2)]
    rows = first + count
    attended, states = numbers(rows + 5, hidden), numbers(rows + 5, hidden)
    before, out = states.copy(), np.full((rows + 5, 3 * hidden), np.nan, np.float32)
    middle = norm(one(attended) + states, *norms[0])
    expected = norm(down(gelu(torch.from_numpy(up(middle))).numpy()) + middle, *norms[1])
    given = one.packed, tuple(norms[0]), up.packed, down.packed, tuple(norms[1]), following.packed
    compiled.rest_of_layer(attended, states, *given, out, 1e-12, first, rows)
    part = slice(first, rows)
    # what is nearly halfway between two whole numbers may be rounded either way
    assert np.abs(states[part] - expected[part]).mean() < 0.02
    assert np.abs(out[part] - following(states)[part]).mean() < 0.02
    for others in (slice(0, first), slice(rows, None)):
        assert np.array_equal(states[others], before[others])
        assert np.isnan(out[others]).all()


def test_weights_take_a_quarter_and_half(saved, units):
    def size(name):
        backbone = Encoder.load(saved, precision=name).backbone
        made, about, weights = precision._converted(Encoder.load(saved).backbone, name)
        assert made.layers == backbone.layers == 2
        assert about["agreement"] > 0.99
        return sum(weight.numel() * weight.element_size() for weight in weights.values())

    whole = size("float32")
    assert size("bfloat16") < 0.55 * whole
    assert size("int8") < 0.4 * whole  # the tiny model's LayerNorm, positions and scales are a large part


def test_a_conversion_is_kept_and_made_again_for_other_weights(saved, monkeypatch, tmp_path, caplog):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(precision, "KEPT", 0)
    first = {name: Encoder.load(saved, precision=name).encode(TEXTS) for name in ("float32", "int8")}
    kept = sorted((tmp_path / "cache/interlingua/models").glob("*-*"))
    assert [path.name.rpartition("-")[2] for path in kept] == ["float32", "int8"] or len(kept) == 2
    with monkeypatch.context() as without:  # what is kept is all that is needed
        without.setattr("interlingua.models.transformer.Transformer.load", lambda *_: pytest.fail("read again"))
        for name, vectors in first.items():
            again = Encoder.load(saved, precision=name)
            # a mapped file lies otherwise in memory than fresh weights: a product may round otherwise
            assert cosines(again.encode(TEXTS), vectors).min() > COSINE_AGAIN[name]
            assert fingerprint(again)["weights"] == fingerprint(Encoder.load(saved, precision=name))["weights"]
    for name in ("words.json", precision.MARKER):
        for path in kept:
            (path / name).write_text("{")
        caplog.clear()
        found = Encoder.load(saved, precision="int8").encode(TEXTS)
        assert cosines(found, first["int8"]).min() > COSINE_AGAIN["int8"]
        assert "is damaged" in caplog.text
    changed = Encoder.load(saved)
    with torch.no_grad():
        changed.input_embeddings.weight.mul_(torch.linspace(0.5, 2, 32))
    changed.save(saved)
    assert cosines(Encoder.load(saved, precision="int8").encode(TEXTS), first["int8"]).min() < 0.999
    assert cosines(Encoder.load(saved, precision="int8").encode(TEXTS), changed.encode(TEXTS)).min() > 0.99
    left = sorted(path.name.rpartition("-")[2] for path in (tmp_path / "cache/interlingua/models").glob("*-*"))
    assert left == ["float32", "int8"]  # the conversion of the weights that are gone is gone too


def test_files_of_equal_names_sizes_and_times_are_told_apart(saved, monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(precision, "KEPT", 0)
    first = Encoder.load(saved, precision="int8").encode(TEXTS)
    changed = Encoder.load(saved)
    with torch.no_grad():
        changed.input_embeddings.weight.mul_(torch.linspace(0.5, 2, 32))
    changed.save(tmp_path / "changed")
    (file,) = saved.rglob("model.safetensors")
    before = file.stat()
    file.write_bytes((tmp_path / "changed" / file.relative_to(saved)).read_bytes())
    assert file.stat().st_size == before.st_size
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert cosines(Encoder.load(saved, precision="int8").encode(TEXTS), first).min() < 0.999


@pytest.mark.slow
def test_threads_that_come_first_together_get_the_vectors_of_one_thread(saved):
    expected = Encoder.load(saved, precision="int8").encode(TEXTS)
    for _ in range(10):
        encoder, ready = Encoder.load(saved, precision="int8"), threading.Barrier(4)

        def encoded(encoder=encoder, ready=ready):
            ready.wait()
            return encoder.encode(TEXTS)

        with ThreadPoolExecutor(4) as pool:
            found = [one.result() for one in [pool.submit(encoded) for _ in range(4)]]
        assert all(np.array_equal(vectors, expected) for vectors in found)


def test_an_index_in_int8_is_opened_where_a_gpu_computes(monkeypatch):
    made = SimpleNamespace(fingerprint={"precision": "int8"})
    assert metadata.made_in(made) == "int8"
    monkeypatch.setattr("interlingua.models.inference.machine.GPUS", ("/dev/null",))
    assert metadata.made_in(made) == "int8"  # a device that torch does not compute on
    monkeypatch.setattr("interlingua.models.encode.default_device", lambda _: torch.device("cuda"))
    assert metadata.made_in(made) == "float32"


def test_the_fingerprint_knows_the_precision(saved, units, caplog):
    caplog.set_level(logging.INFO)
    found = {name: fingerprint(DualEncoder.load(saved, precision=name)) for name in COSINE}
    assert found["float32"] == fingerprint(DualEncoder.load(saved))
    assert found["int8"]["precision"] == "int8"
    assert len({json.dumps(one) for one in found.values()}) == 3
    check(DualEncoder.load(saved, precision="bfloat16"), found["int8"], "idx")
    assert "idx: was made in int8, the model computes in bfloat16; their vectors agree to 0.9" in caplog.text
    with pytest.raises(BadInput, match="idx: was made in int8, and the model in float32 gives other vectors"):
        check(DualEncoder.load(saved), {**found["int8"], "agreement": 0.9}, "idx")


def test_an_index_remembers_its_precision(saved, tmp_path, capsys):
    (tmp_path / "texts.txt").write_text("Alan Turing was born in London.\n\nHelsinki is the capital of Finland.\n")
    made, asked = str(tmp_path / "idx"), ["search", str(tmp_path / "idx"), "Turing"]
    assert main(["index", str(saved), str(tmp_path / "texts.txt"), "--out", made, "--precision", "int8"]) == 0
    index = open_index(made)
    assert index.encoder.query.backbone.precision == "int8"
    index.close()
    assert main(asked) == main([*asked, "--precision", "int8", "--model", str(saved)]) == 0
    assert "was made in" not in capsys.readouterr().err
    assert main([*asked, "--precision", "float32"]) == 0
    out, err = capsys.readouterr()
    assert f"{made}: was made in int8, the model computes in float32" in err
    assert "London" in out


def test_auto_takes_what_the_processor_has_and_says_so(saved, monkeypatch, caplog):
    caplog.set_level(logging.INFO)
    cpu = torch.device("cpu")
    for flags, compiled, wanted in (
        ({"amx_bf16"}, None, "bfloat16"),
        (set(), object(), "int8"),
        (set(), None, "float32"),
    ):
        monkeypatch.setattr(precision, "processor", lambda flags=flags: flags)
        monkeypatch.setattr(precision, "cpu_has_bfloat16", lambda flags=flags: "amx_bf16" in flags)
        monkeypatch.setattr(precision, "kernel", lambda compiled=compiled: compiled)
        assert Encoder.load(saved, precision="auto").backbone.precision == wanted
        assert f"precision {wanted}: the fastest on this processor" in caplog.text
    with pytest.raises(BadInput, match="this processor has no bfloat16 units"):
        precision.chosen("bfloat16", cpu)
    assert precision.chosen("auto", torch.device("cuda")) == ""
    with pytest.raises(BadInput, match="is for processors"):
        precision.chosen("int8", torch.device("cuda"))


def test_what_a_precision_cannot_be_had_for(saved, tiny_static, tmp_path):
    tiny_static().save(tmp_path / "static")
    with pytest.raises(BadInput, match="is a static model, which has no precision to choose"):
        Encoder.load(tmp_path / "static", precision="int8")
    with pytest.raises(BadInput, match="precision 'int4' is unknown"):
        Encoder.load(saved, precision="int4")
    with pytest.raises(BadInput, match="precision, for inference on a processor, or dtype, not both"):
        Encoder.load(saved, precision="int8", dtype="float32")
    small = Encoder.load(saved, precision="int8")
    with pytest.raises(BadInput, match="loaded for inference"):
        small.save(tmp_path / "again")
    with pytest.raises(BadInput, match="loaded for inference"):
        small.input_embeddings  # noqa: B018
    with pytest.raises(BadInput, match="hidden states 0 to 2"):
        Encoder.load(saved, precision="int8", layer=3)
    with pytest.raises(BadInput, match="layers cannot be chosen one by one"):
        Encoder.load(saved, precision="int8", layer=[0])
    assert Encoder.load(tmp_path / "static", precision="auto").is_static


def test_another_kind_of_model_has_float32_alone(tmp_path, tiny_encoder):
    from transformers import DistilBertConfig, DistilBertModel

    from interlingua.models.folder import Settings
    from interlingua.models.layout import Parts
    from interlingua.models.transformer import Transformer

    tokenizer = tiny_encoder().tokenizer
    model = DistilBertModel(DistilBertConfig(vocab_size=len(tokenizer), dim=32, n_layers=1, n_heads=4, hidden_dim=64))
    encoder = Encoder.of(Parts(Transformer(model, tokenizer), "mean", settings=Settings(max_length=64)), device="cpu")
    encoder.save(tmp_path / "distil")
    assert np.allclose(Encoder.load(tmp_path / "distil", precision="float32").encode(TEXTS), encoder.encode(TEXTS))
    assert np.allclose(Encoder.load(tmp_path / "distil", precision="auto").encode(TEXTS), encoder.encode(TEXTS))
    with pytest.raises(BadInput, match="a distilbert model has no precision to choose"):
        Encoder.load(tmp_path / "distil", precision="int8")


@pytest.fixture
def kept(saved, monkeypatch, tmp_path):
    """A saved model whose conversions are in the cache."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(precision, "KEPT", 0)
    for name in ("float32", "int8"):
        Encoder.load(saved, precision=name)
    return saved


LOADED = """
import json, sys
from interlingua import Index
index = Index.open(sys.argv[1])
hits = index.search("Where was Alan Turing born?", k=1)
loaded = [name for name in ("torch", "transformers") if name in sys.modules]
print(json.dumps([hits[0].passage.text, hits[0].parts["dense"], loaded]))
"""


@pytest.mark.slow
@pytest.mark.parametrize("name", ["float32", "int8"])
def test_a_question_to_an_index_needs_no_torch(name, kept, tmp_path):
    passages = [Passage("t", TEXTS[3][1], "Turing", "en"), Passage("h", "Helsinki is a town.", "", "en")]
    encoder = load_any(kept, precision=name)
    index = Index.build(encoder, passages, tmp_path / "idx", model_path=str(kept))
    expected = index.search("Where was Alan Turing born?", k=1)[0]
    run = subprocess.run([sys.executable, "-c", LOADED, tmp_path / "idx"], capture_output=True, text=True, check=True)
    text, score, loaded = json.loads(run.stdout)
    assert loaded == []
    assert text == expected.passage.text
    assert abs(score - expected.parts["dense"]) < 1e-6


@pytest.mark.parametrize("name", ["float32", "int8"])
def test_the_light_encoder_gives_the_vectors_of_the_whole(name, kept, monkeypatch):
    light, whole = LightEncoder.load(kept, name), Encoder.load(kept, precision=name)
    assert fingerprint(light) == fingerprint(DualEncoder.load(kept, precision=name))
    for role in ("query", "document"):
        found, expected = getattr(light, f"encode_{role}")(TEXTS), getattr(whole, f"encode_{role}")(TEXTS)
        assert np.abs(found - expected).max() < 1e-6
    assert light.encode_query(TEXTS[0]).shape == (32,)
    assert light.encode_query(text for text in TEXTS[:2]).shape == (2, 32)
    assert light.whole.value is None
    long = light.encode_document([TEXTS[-1]] * 100)
    assert (light.whole.value is None) == (name == "int8")  # in float32 torch computes what is long
    assert np.abs(long - whole.encode_document([TEXTS[-1]])).max() < 1e-6
    assert light.encode_query(TEXTS, convert_to_tensor=True).shape == (len(TEXTS), 32)
    monkeypatch.setattr("interlingua.models.inference.machine.GPUS", ("/dev/null",))
    assert LightEncoder.load(kept, name) is None


@pytest.mark.parametrize("name", ["float32", "int8"])
def test_a_model_that_replaces_a_loaded_one_is_never_mixed_with_it(name, kept, tiny_encoder):
    light = LightEncoder.load(kept, name)
    before = light.encode_query(["a question"])
    prompts = {"query": "query: ", "passage": "passage: "}
    torch.manual_seed(12)
    other = tiny_encoder(pooling="mean", prompts=prompts)
    for weight in other.backbone.model.parameters():
        torch.nn.init.normal_(weight)
    shutil.rmtree(kept)
    other.save(kept)
    for precision_of_the_other in ("float32", "int8"):  # and the older conversions are gone
        Encoder.load(kept, precision=precision_of_the_other)
    assert (light.encode_query(["a question"]) == before).all()
    with pytest.raises(Stale, match="Load it again"):
        light.encode_document(["a </s> b"])
    with pytest.raises(Stale, match="Load it again"):
        light.encode_document([TEXTS[-1]] * 100, convert_to_tensor=True, device="cpu")


def test_only_the_rows_of_a_table_that_are_asked_for_are_read(tmp_path, monkeypatch):
    rows = np.random.default_rng(0).normal(size=(5_000, 64)).astype(np.float32)
    np.save(tmp_path / "rows.npy", rows)
    ids, reads, pread = np.array([7, 4_999, 7, 0]), [], os.pread
    monkeypatch.setattr(os, "pread", lambda file, size, start: reads.append(size) or pread(file, size, start))
    for given in (rows, np.load(tmp_path / "rows.npy", mmap_mode="r")):
        assert np.array_equal(Table(given).take(ids), rows[ids])
    assert reads == [rows[0].nbytes] * 3  # each once, and those of a table in memory not at all
    bits = (rows.view(np.uint32) >> 16).astype(np.uint16)
    assert np.allclose(Table(bits).take(ids), rows[ids], rtol=0.01)
    again = copy.deepcopy(table := Table(np.load(tmp_path / "rows.npy", mmap_mode="r")))
    del table
    assert np.array_equal(again.take(ids), rows[ids])


@pytest.mark.slow
def test_a_process_that_compiles_the_layers_computes_what_the_next_one_computes(saved, tmp_path):
    if int8.kernel() is None:
        pytest.skip("numba is not here, or the processor has no AVX2")
    script = (
        "import sys; from interlingua.models.encoder import Encoder; "
        f"found = Encoder.load(sys.argv[1], precision='int8').encode({TEXTS!r}); print(found.tobytes().hex())"
    )
    environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path / "numba")}
    said = [
        subprocess.run(
            [sys.executable, "-c", script, str(saved)], env=environment, stdout=subprocess.PIPE, text=True, check=True
        ).stdout
        for _ in range(2)
    ]
    assert said[0] == said[1]


def test_the_precision_of_a_processor_is_left_out_on_a_gpu():
    assert on_processor("int8", "cpu") == "int8"
    assert on_processor("int8", "cuda") is on_processor(None, "cpu") is None
