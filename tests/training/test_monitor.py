"""Numbers of the space, and the alarm."""

import torch

from interlingua.training.step import Report
from interlingua.training.trainer import alarm, space


def test_alignment_is_of_the_pairs_and_uniformity_of_the_passages():
    torch.manual_seed(0)
    passages, source = torch.randn(40, 8), torch.randn(30, 8)
    reports = {
        "retrieval": Report(1.0, vectors={"queries": torch.randn(40, 8), "passages": passages}),
        "semantic": Report(1.0, vectors={"passage.source": source, "passage.target": source}),
    }
    found = space(reports)
    assert found["space/alignment"] < 1e-6
    assert found["space/uniformity"] == space({"retrieval": reports["retrieval"]})["space/uniformity"]
    assert alarm(found) is None


def test_collapsed_vectors_raise_the_alarm():
    same = torch.ones(20, 8) + 1e-3 * torch.randn(20, 8)
    found = space({"semantic": Report(1.0, vectors={"passage.source": same, "passage.target": same})})
    assert "collapsed" in alarm(found)
    assert "objectives.language.weight" in alarm(found)


def test_nothing_measured_is_nothing_to_say():
    assert space({"retrieval": Report(1.0)}) == {}
    assert alarm({}) is None
