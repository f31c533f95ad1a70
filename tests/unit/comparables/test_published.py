"""Published results: the file is valid, only its wrong rows are found, and similar rows appear beside ours."""

from collections.abc import Sequence
from pathlib import Path

import pytest

import report_fixture
from throughline import handover
from throughline.commands import check
from throughline.comparables import flop_conventions, implausible, published
from throughline.comparables.published import differences, is_like
from throughline.files import UserError, sha256
from throughline.records import Result, ends
from throughline.report.analysis import summary
from throughline.report.analysis.cells import groups
from throughline.report.topic import Scope
from throughline.report.topics import write_tables

JOB = {"global_step": "32", "train_steps_per_second": "0.157", "train_runtime": "203.6953"}


def row(**changes: object) -> Result:
    """Return a correct row of a synthetic table on eight H100."""
    known: dict[str, object] = {
        "origin": "published", "source": "a table", "framework": "torch", "model": "llama-3.1-8b",
        "sequence_length": 8192,
        "precision": "bf16", "device": "H100 80GB HBM3", "nodes": 1, "devices": 8, "batch": 2,
        "gradient_accumulation": 1, "global_batch": 16, "value": "6667", "unit": "tokens/s/device",
    }  # fmt: skip
    return Result.model_validate(known | changes)


def rules(rows: Sequence[Result]) -> list[str]:
    """Return the rules that doubt a row of a published table."""
    return [doubt.rule for doubt in implausible.doubts(rows)]


@pytest.mark.parametrize(
    ("text", "what", "why"),
    [
        (None, "cannot be read", "No such file"),
        (b"\xcf\x00\xff", "cannot be read", "no CSV in UTF-8"),
        (b"", "has no rows", ""),
        (b"a,b\n1,2\n", "line 2 is no published result", "source: Field required; framework: Field required; model: "),
        (",fp31,", "line 3 is no published result", "precision: "),
        (",1 GPU,", "line 3 is no published result", "invalid literal"),
    ],
)
def test_a_wrong_file_and_a_wrong_line_are_named(text: str | bytes | None, what: str, why: str, tmp_path: Path) -> None:
    path = tmp_path / "published.csv"
    if isinstance(text, bytes):
        path.write_bytes(text)
    elif text:
        lines = published.FILE.read_text(encoding="utf-8").splitlines(keepends=True)
        wrong = lines[2].replace(",fp32," if "fp" in text else ",1,", text, 1)
        path.write_text("".join([*lines[:2], wrong]), encoding="utf-8")
    with pytest.raises(UserError, match=what) as caught:
        list(published.read(path))
    assert why in (caught.value.why or "")


def test_a_vendors_table_is_checked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, columns = tmp_path / "vendor.csv", "source,framework,model,devices,value,speedup\n"
    rows = "offer,torch,bert-large,1,100,1\noffer,torch,bert-large,8,790,{}\n"
    path.write_text(columns + rows.format("8.9"), encoding="utf-8")
    assert check.main(path) == 1
    wrong = (
        "implausible: offer, torch, bert-large, precision not stated, 8 devices: its own arithmetic: printed speedup"
    )
    assert f"{wrong} 8.9: 790 / 100 = 7.9" in capsys.readouterr().out
    path.write_text(columns + rows.format("7.9"), encoding="utf-8")
    assert check.main(path) == 0
    assert "vendor.csv: 2 rows, 0 implausible." in capsys.readouterr().out


def test_published_rows_have_their_doubts() -> None:
    """R100 with 245 pictures a second on a V100 is 113 % of its peak, because a convolution can need fewer
    multiplications than its definition. So it is not doubted."""
    rows = published.rows()
    written = [one.implausible for one in rows]
    assert written == implausible.columns(published.FILE), "python -m throughline.comparables.implausible"
    assert any("printed speedup 27.33: 14822.31 / 544.31 = 27.23" in text for text in written)
    assert not any(one.model == "iresnet100" and "TFLOPS" in one.implausible for one in rows)
    assert len(rows) > 1000 and all(one.place and one.framework for one in rows)
    empty = [one for one in rows if not (one.samples_per_s or one.printed or one.unit == "TFLOPS")]
    assert [(one.source, one.batch, one.convention.partition(";")[0]) for one in empty] == [
        ("DLPerf MXNet BERT", 96, "out of memory")
    ]


def test_memory_of_each_batch_and_the_samples_of_a_step_are_as_their_sources_print_them() -> None:
    """Each of the 32 GPUs of NVIDIA's BERT took 8,448 sequences: 50 steps in 3384.2276 s are 3994.0576 sequences/s."""
    mxnet = [one for one in published.rows() if one.source == "DLPerf MXNet BERT" and one.value is None]
    assert [(one.batch, one.printed.get("memory_mib")) for one in mxnet] == [
        (32, "10317"), (48, "14021"), (64, "14959"), (96, None),
    ]  # fmt: skip
    nvidia = [
        one for one in published.rows()
        if one.source.startswith("PaddlePaddle/Perf") and (one.framework, one.model) == ("NGC PyTorch", "bert-base")
    ]  # fmt: skip
    steps = {(one.devices, one.global_batch) for one in nvidia}
    assert steps == {(1, 67584), (8, 67584), (32, 270336)} and round(50 * 270336 / 3384.2276067733765, 4) == 3994.0576
    for one in nvidia:
        assert (one.batch or 0) * (one.gradient_accumulation or 0) * (one.devices or 0) == one.global_batch


@pytest.mark.parametrize(
    ("rule", "table"),
    [
        ("speedup over devices", [row(devices=1, value="6000", global_batch=2), row(value="6002")]),
        ("more devices, slower", [row(devices=1, value="6000", global_batch=2), row(value="700")]),
        ("its own arithmetic", [row(printed={"seconds_per_step": "1.23"})]),
        ("its own arithmetic", [row(printed=JOB | {"train_runtime": "213.6953"})]),
        ("its own arithmetic", [row(printed={"tflops": "600"})]),
        ("its own arithmetic", [row(printed={"tflops": "386", "mfu": "0.195"})]),
        ("above the datasheet", [row(printed={"mfu": "1.64"})]),
        ("above the datasheet", [row(printed={"memory_mib": "76800000"})]),
        ("above the datasheet", [row(value="19300")]),
        ("above the measured matrix product", [row(value="16000")]),
        ("equal results that should differ", [row(evidence="a log"), row(devices=16, evidence="a log", value="1")]),
        ("equal results that should differ", [row(), row(device="B200")]),
        ("unequal results that should be equal", [row(), row(value="6668.5")]),
    ],
)  # fmt: skip
def test_each_rule_finds_its_fault(rule: str, table: list[Result]) -> None:
    assert rule in rules(table)


def test_a_right_table_has_no_doubts() -> None:
    """It is correct to count full attention as well as causal attention, and to round a speedup. The printed digits say
    how exactly a figure is known."""
    assert ends("27.33") == pytest.approx((27.325, 27.335)) and ends("120") == (119.5, 120.5)
    assert row().samples_per_s == pytest.approx((6666.5 * 8 / 8192, 6667.5 * 8 / 8192))
    assert row(unit="ms", value="400").samples_per_s == pytest.approx((16e3 / 400.5, 16e3 / 399.5))
    right = {"tflops": "386", "mfu": "0.39", "seconds_per_step": "2.457", "memory_mib": "77000"}
    assert rules([row(printed=right)]) == []
    assert rules([row(printed={"tflops": "343"})]) == rules([row(printed=JOB)]) == []
    assert rules([row(devices=1, value="6700", global_batch=2), row()]) == []
    assert "its own arithmetic" in rules([row(printed={"tflops": "386", "mfu": "0.19"})])


def test_conventions_count_as_their_projects_do() -> None:
    """Llama 3.1 8B at 8,192 tokens: the GFLOP per token that torchtitan and NeMo print. Megatron counts recomputation:
    96 B s l h^2 (1 + s / 6h + V / 16lh) of Narayanan et al. 2021."""
    each = flop_conventions.flops_per_sample("llama-3.1-8b", {"sequence_length": 8192})
    per_token = {name: count / 8192 / 1e9 for name, count in each.items()}
    nemo, torchtitan, palm = 51.5, 57.9, 6 * 8.03 + 57.91 - 6 * 7.505
    expected = {"full": torchtitan, "torchtitan": torchtitan, "nemo": nemo, "causal": nemo, "palm": palm}
    assert {name: per_token[name] for name in expected} == pytest.approx(expected, abs=0.05)
    each = flop_conventions.flops_per_sample("gpt-1536x16", {"sequence_length": 2048})
    layers, hidden, tokens, rows = 16, 1536, 2048, 50304
    formula = 96 * tokens * layers * hidden**2 * (1 + tokens / (6 * hidden) + rows / (16 * layers * hidden))
    assert each["megatron"] == pytest.approx(formula, rel=1e-9)


def test_flops_of_a_model_of_ones_own_need_its_file_and_its_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    """The samples of a batch share products of DeBERTa, so with another batch our own figure would be questionable."""
    file = Path(__file__).parents[3] / "presets" / "deberta-two-layers.json"
    digest = sha256(file)
    printed = row(
        model="transformers:deberta-two-layers", sequence_length=32, batch=4, global_batch=4, devices=1, device=None,
        parameters={"task": "mlm", "config_sha256": digest, "predictions": 5}, value="73.4377", unit="samples/s",
        printed={"tflops": "0.06849598564201978"},
    )  # fmt: skip
    monkeypatch.delenv(handover.VARIABLE, raising=False)
    assert flop_conventions.of_row(printed) == {} and rules([printed]) == []
    monkeypatch.setenv(handover.VARIABLE, handover.packed(models={digest: str(file)}))
    assert flop_conventions.of_row(printed)["model"] == pytest.approx(932_708_352, rel=0.01)
    assert rules([printed]) == []
    assert "its own arithmetic" in rules([printed.model_copy(update={"batch": 1})])


def test_a_precision_that_is_not_stated_matches_and_is_named() -> None:
    ours, unstated = row(origin="measured"), row(precision=None)
    assert is_like(ours, unstated) and not is_like(ours, row(precision="fp8"))
    assert "precision not stated (ours bf16)" in differences(ours, unstated)


def test_like_rows_stand_beside_ours(tmp_path: Path) -> None:
    study = report_fixture.write_series(tmp_path, report_fixture.DLPERF_BERT_BS32)
    own = summary.summarize(study, repeats=7)
    scope = Scope(groups([own]), imported=[row(model="bert-base", sequence_length=128, precision="fp32", batch=32,
                                               device="V100-SXM2-16GB", value="1050", unit="samples/s",
                                               origin="imported")])  # fmt: skip
    here = [(cell, found) for cell, found in scope.similar if found.other.source == "DLPerf MXNet BERT"]
    assert {str(cell.topology): found.ratio for cell, found in here} == pytest.approx(
        dict.fromkeys(report_fixture.DLPERF_BERT_BS32, 1.0), abs=1e-4
    )
    assert all(
        found.range[0] < 1 < found.range[1] and "framework MXNet (ours torch)" in found.differs for _, found in here
    )
    assert [found.other.value for _, found in scope.similar if found.other.origin == "imported"] == ["1050"]
    write_tables(scope, tmp_path / "tables")
    written = report_fixture.read_csv(tmp_path / "tables/beside.csv")
    assert len(written) == len(scope.similar) and {line["origin"] for line in written} == {"published", "imported"}
    html = report_fixture.page_of(tmp_path, own)
    assert "Beside others" in html and "DLPerf MXNet BERT" in html
    assert html.count("DLPerf MXNet BERT</td>") == len(here)


def test_our_own_rows_are_checked_by_the_same_rules(tmp_path: Path) -> None:
    """Checked with a speed above the datasheet's peak, and with a speedup of nine on eight devices."""
    study = report_fixture.write_series(tmp_path, {"1n1g": [300.0] * 3, "1n8g": [2700.123456789] * 3})
    texts = [doubt.text for doubt in Scope(groups([summary.summarize(study, repeats=3)])).doubts]
    assert any("TFLOPS" in text and "15.7 in fp32" in text for text in texts)
    assert any("is more than the 8 devices can give: 2700.12 / 300.0" in text for text in texts)
