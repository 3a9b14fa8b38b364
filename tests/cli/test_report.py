from __future__ import annotations

from interlingua.cli import main
from interlingua.evaluation import languages as bias


def test_a_mirror_of_two_models(tmp_path, monkeypatch, capsys, tiny_static):
    monkeypatch.chdir(tmp_path)
    for seed in (1, 2):
        tiny_static(seed=seed).save(f"m{seed}")
    assert main(["report", "m1", "m2", "--on", "encyclopedia:en", "encyclopedia:fi", "--out", "page.html"]) == 0
    said = capsys.readouterr().out
    assert "without bias" in said
    assert said.splitlines()[0].split()[-2:] == ["m1", "m2"]
    assert (tmp_path / "page.html").read_text(encoding="utf-8").count("<svg") == 2


def test_what_a_mirror_cannot_show_is_said(tmp_path, monkeypatch, capsys, tiny_static):
    monkeypatch.chdir(tmp_path)
    tiny_static().save("m1")
    for arguments, said in (
        [["--on", "encyclopedia:en"], "needs two"],
        [["--on", "encyclopedia:en", "encyclopedia:en"], "one collection for each language"],
        [["--on", "encyclopedia:en", "encyclopedia:fi", "--out", "page.pdf"], "must end in .html"],
    ):
        assert main(["report", "m1", *arguments]) == 2
        assert said in capsys.readouterr().err
    assert not list(tmp_path.glob("*.html"))
    measured = []
    monkeypatch.setattr(bias, "language_bias", lambda *given: measured.append(given))
    (tmp_path / "empty").mkdir()
    assert main(["report", "m1", "./empty", "--on", "encyclopedia:en", "encyclopedia:fi"]) == 2
    assert "is not a model folder" in capsys.readouterr().err
    assert not measured  # all models are read before the first is measured
