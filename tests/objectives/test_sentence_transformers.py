"""Our losses inside sentence-transformers' own trainer."""

import pytest
import torch

from interlingua.objectives import SentenceTransformersLoss, info_nce, language_contrastive, semantic_contrastive

sentence_transformers = pytest.importorskip("sentence_transformers")
datasets = pytest.importorskip("datasets")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("loss", "options"),
    [(semantic_contrastive, {"temperature": 0.1}), (language_contrastive, {}), (info_nce, {"temperature": 0.05})],
)
def test_three_steps_of_their_trainer(tiny_encoder, sentences, tmp_path, loss, options):
    tiny_encoder(pooling="mean").save(tmp_path / "model")
    model = sentence_transformers.SentenceTransformer(str(tmp_path / "model"), device="cpu")
    before = {name: tensor.detach().clone() for name, tensor in model.named_parameters()}
    pairs = datasets.Dataset.from_dict({"source": sentences[:12], "target": sentences[1:13]})
    arguments = sentence_transformers.SentenceTransformerTrainingArguments(
        output_dir=str(tmp_path / "out"),
        max_steps=3,
        per_device_train_batch_size=6,
        learning_rate=1e-2,
        logging_steps=1,
        report_to=[],
        save_strategy="no",
        use_cpu=True,
    )
    adapter = SentenceTransformersLoss(model, loss, **options)
    trainer = sentence_transformers.SentenceTransformerTrainer(
        model=model, args=arguments, train_dataset=pairs, loss=adapter
    )
    trainer.train()
    losses = [line["loss"] for line in trainer.state.log_history if "loss" in line]
    assert len(losses) == 3
    assert all(torch.isfinite(torch.tensor(losses)))
    assert any(not torch.equal(before[name], tensor) for name, tensor in model.named_parameters())
    assert adapter.get_config_dict()["loss"] == loss.__name__


def test_the_adapter_gives_the_losss_own_value(tiny_encoder, sentences, tmp_path):
    tiny_encoder(pooling="mean").save(tmp_path / "model")
    model = sentence_transformers.SentenceTransformer(str(tmp_path / "model"), device="cpu").eval()
    columns = sentences[:6], sentences[6:12]
    features = [model.preprocess(list(texts)) for texts in columns]
    vectors = [model.encode(list(texts), convert_to_tensor=True) for texts in columns]
    ours = SentenceTransformersLoss(model, semantic_contrastive, temperature=0.2)(features)
    assert ours.item() == pytest.approx(semantic_contrastive(*vectors, temperature=0.2).item(), abs=1e-5)
