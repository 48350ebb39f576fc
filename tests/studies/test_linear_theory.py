"""The study of linear encoders: end to end in seconds, and its rule of comparison."""

import json

from probssl import studies
from probssl.studies import linear_cases, linear_theory, linear_trials


def test_smoke(tmp_path, monkeypatch):
    kept = linear_cases.cases(128)[::13]
    for module in (linear_theory, linear_trials):
        monkeypatch.setattr(module, "cases", lambda batch_size: kept)
    monkeypatch.setitem(linear_theory.SCALE, "smoke", (1, 60, 128))
    result = studies.run("siamese/linear-theory", "smoke", tmp_path / "out", quiet=True, jobs=1)
    assert result.reference == "predicted"
    assert {row.setting for row in result.rows} == {case.name for case in kept}
    assert json.loads((tmp_path / "out" / "result.json").read_text())["reference"] == "predicted"
    assert result.trials == len(kept)
    page = result.page.read_text(encoding="utf-8")
    assert "Predicted and trained" in page
    assert "data:image/png" in page
    assert (tmp_path / "out" / "gram-matrices.png").stat().st_size > 5000


def test_verdicts_follow_the_tolerance():
    case = next(c for c in linear_cases.cases(128) if c.value is not None)
    config = {"case": case.name, "seed": 0}
    predicted = case.value(case.gram)

    def rows(error, value):
        results = [(config, {"gram": case.gram, "error": error, "value": value})]
        return linear_theory.LinearTheory().summarise(results, "smoke")

    for error, verdict in ((0.0, "matched"), (0.029, "matched"), (0.031, "missed")):
        found = rows(error, predicted)
        assert [(row.metric, row.published) for row in found] == [("loss", predicted), ("error of WᵀW", 0.0)]
        assert found[1].verdict == verdict
    assert rows(0.0, predicted + 0.04 * case.constant)[0].verdict == "missed"


def test_the_von_mises_fisher_pairing_has_the_right_mean():
    import torch

    from probssl.theory.sphere import mean_resultant_length

    z = torch.from_numpy(linear_cases.uniform_on_sphere(0)[:20_000]).float()
    drawn = linear_cases.VonMisesFisher(10.0).sample(z, torch.Generator().manual_seed(0))
    cosine = float((z * drawn).sum(1).mean())
    assert abs(cosine - mean_resultant_length(10, 10.0)) < 0.01


def test_a_case_whose_every_seed_failed_is_left_out(tmp_path):
    study = linear_theory.LinearTheory()
    case = linear_cases.cases(128)[0]
    config = {"case": case.name, "seed": 0, "steps": 250, "batch_size": 128}
    results = [(config, {"gram": case.gram.tolist(), "error": 0.0, "value": case.value(case.gram)})]
    rows = study.summarise(results, "smoke")
    assert {row.setting for row in rows} == {case.name}
    assert study.page(results, rows, "smoke").write(tmp_path).is_file()
