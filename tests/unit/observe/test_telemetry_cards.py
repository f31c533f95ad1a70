"""What is read from a GPU with nvidia-ml-py. A library that answers like NVML takes the place of a card."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pynvml
import pytest

import nvml_double
import training_fixtures
from throughline import messages
from throughline.messages import GpuFault, Refusal
from throughline.observe import telemetry_cards

ASK = """
import json, sys, time
from throughline import messages
from throughline.observe.telemetry_cards import Cards
from throughline.spec import read
cards = Cards(read(messages.LaunchPlan, json.loads(sys.argv[2])))
refused, marked = cards.faults(json.loads(sys.argv[1]))
reads = [cards.read()]
for _ in range(2):
    time.sleep(0.2)
    reads.append(cards.read())
refused = [fault.text for fault in refused]
print(json.dumps([refused, marked, cards.facts, reads, [card.reasons for card in cards.cards], cards.reason]))
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return nvml_double.build(tmp_path_factory.mktemp("nvml"))


def asked(library: Path, earlier: Any = (), **answers: float) -> Any:
    plan = training_fixtures.plan("1n2g", kind="cuda")
    done = subprocess.run(
        [sys.executable, "-c", ASK, json.dumps(list(earlier)), messages.text(plan)],
        env=nvml_double.variables(library, **answers),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_an_idle_card_is_read_in_plain_units(library: Path) -> None:
    refused, marked, facts, reads, reasons, why = asked(library, gpu=7)
    assert (refused, marked, why, len(reads[0])) == ([], [], None, 2)
    assert (facts[0]["power_limit_w"], facts[0]["ecc"], facts[0]["mig"]) == (700.0, True, None)
    assert (facts[0]["power_limit_enforced_w"], facts[0]["memory_clock_set_mhz"]) == (700.0, 2619)
    assert (facts[0]["sm_clock_most_mhz"], facts[0]["memory_clock_most_mhz"]) == (1980, 2619)
    first, last = reads[0][0], reads[-1][0]
    plain = {"memory_clock_mhz": 2619, "utilization": 0.07, "sm_clock_mhz": 1980, "power_w": 350, "temperature_c": 61}
    assert first.items() >= plain.items()
    assert telemetry_cards.throttles(first["throttles"]) == ["sw_power_cap"]
    assert last["energy_j"] - first["energy_j"] == pytest.approx(350 * 0.4, rel=0.5)
    assert last["sm_active_s"] / last["tensor_active_s"] == pytest.approx(90 / 40)
    assert last["nvlink_received_bytes"] is None and "Not Supported" in reasons[0]["nvlink_received_bytes"]


def test_a_card_without_counters_or_permission_says_so(library: Path) -> None:
    _, _, _, reads, reasons, _ = asked(library, gpm=0, fail_energy=3, fail_power=4)
    assert reads[0][0]["energy_j"] is None and reads[0][0]["sm_active_s"] is None and reads[0][0]["power_w"] is None
    assert "Not Supported" in reasons[0]["energy_j"]
    assert "Insufficient Permissions" in reasons[0]["power_w"]
    assert "no GPM counters" in reasons[0]["sm_active_s"]


def test_without_a_driver_there_is_a_reason(tmp_path: Path) -> None:
    _, _, facts, reads, _, why = asked(tmp_path)
    assert facts == [] and reads == [[], [], []] and "Not Found" in why


@pytest.mark.slow
@pytest.mark.parametrize(
    ("answers", "refused"),
    [
        ({"pid": 4194304, "gpu": 63}, "GPU 0 is used by another process (4194304, 3.0 GiB)"),
        ({"pid": 4194304, "used": 30e9}, "GPU 0 is used by another process (4194304, 3.0 GiB)"),
        ({"gpu": 63}, "GPU 0 is in use (63% of the time"),
        ({"used": 30e9}, "27.9 GiB of its memory"),
        ({"uncorrected": 2}, "GPU 0 has 2 uncorrected ECC errors"),
    ],
)
def test_a_busy_or_faulty_card_is_refused(library: Path, answers: dict[str, float], refused: str) -> None:
    refusals, _, *_ = asked(library, **answers)
    assert any(refused in text for text in refusals)


def test_a_process_that_only_holds_memory_is_named_in_a_warning(library: Path) -> None:
    refused, marked, *_ = asked(library, pid=os.getpid())
    process = f"{psutil.Process().name()}, {os.getpid()}, 3.0 GiB"
    assert refused == []
    assert marked == [f"GPU 0: another process ({process}) holds memory and computes nothing now"]


def test_limits_that_differ_and_errors_that_were_mended_are_marked(library: Path) -> None:
    earlier = [{
        "power_limit_w": 700.0, "power_limit_enforced_w": 700.0, "sm_clock_set_mhz": 1980, "memory_clock_set_mhz": 2619,
        "ecc": True, "mig": None,
    }]  # fmt: skip
    answers = {"limit": 300, "enforced": 250, "clock": 1200, "memclock": 1593, "corrected": 3, "pending": 1}
    refused, marked, *_ = asked(library, earlier, **answers)
    assert refused == []
    now = {"power_limit_w": 300.0, "power_limit_enforced_w": 250.0, "sm_clock_set_mhz": 1200}
    for name, value in (now | {"memory_clock_set_mhz": 1593}).items():
        assert f"GPU 0: {name} was {earlier[0][name]} for an earlier repeat and is {value}" in marked
    for words in ("3 corrected ECC errors", "waits for a reset"):
        assert any(words in text for text in marked)


def test_a_lock_that_cannot_be_asked_for_shows_in_the_clock_that_runs(library: Path) -> None:
    """This is how a newer driver answers, which has no application clocks any more."""
    _, marked, facts, reads, reasons, _ = asked(library, [{"sm_clock_set_mhz": 1980}], sm=1200, mem=1593, fail_clock=3)
    assert marked == [] and facts[0]["sm_clock_set_mhz"] is None
    assert "Not Supported" in reasons[0]["sm_clock_set_mhz"]
    assert (reads[0][0]["sm_clock_mhz"], reads[0][0]["memory_clock_mhz"]) == (1200, 1593)


NOT_KNOWN: dict[str, Any] = dict.fromkeys((
    "processes", "utilization", "memory_used_bytes", "ecc_uncorrected", "ecc_corrected", "rows_pending", "rows_failed",
))  # fmt: skip


def test_what_is_not_known_is_no_fault() -> None:
    assert telemetry_cards.faults_of(0, NOT_KNOWN, {}, {"power_limit_w": 300.0}) == ([], [])


def test_a_broken_gpu_is_told_from_a_busy_one() -> None:
    state = {"rows_failed": True, "ecc_uncorrected": 3, "processes": [(17, None)], "utilization": 0.5}
    refused, _ = telemetry_cards.faults_of(5, NOT_KNOWN | state, {}, {})
    assert [(fault.gpu, fault.broken) for fault in refused] == [
        (5, None),
        (5, "has 3 uncorrected ECC errors since the driver was loaded"),
        (5, "could not remap a faulty row of its memory"),
    ]
    assert refused[2].text == "GPU 5 could not remap a faulty row of its memory"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("visible", "answers", "names"),
    [
        (None, {}, ["Double 1", "Double 2"]),
        (None, {"mig": 0}, ["Double 1", "Double 2"]),
        (None, {"mig": 1, "slices": 1}, ["Double 106", "Double 206"]),
        ("GPU-1,GPU-2", {"mig": 1, "slices": 1}, ["Double 106", "Double 206"]),
        ("MIG-103,MIG-104", {"mig": 1, "slices": 7}, ["Double 103", "Double 104"]),
    ],
)
def test_a_slice_of_a_card_is_watched_and_not_the_card(
    library: Path, monkeypatch: pytest.MonkeyPatch, visible: str | None, answers: dict[str, float], names: list[str]
) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    refused, marked, facts, *_, why = asked(library, **answers)
    assert (refused, marked, why, [card["name"] for card in facts]) == ([], [], None, names)


@pytest.mark.slow
@pytest.mark.parametrize("slices", [0, 2])
def test_a_slice_that_nobody_names_is_not_watched_and_the_run_is_marked(library: Path, slices: int) -> None:
    refused, marked, facts, reads, _, why = asked(library, mig=1, slices=slices)
    assert (refused, facts, reads) == ([], [], [[]] * 3)
    assert marked == [why] and f"GPU 0 is in MIG mode with {slices} slices" in why and "UUID" in why


def test_throttle_reasons_are_nvml_s() -> None:
    ours = telemetry_cards.THROTTLES
    assert ours["sw_power_cap"] == pynvml.nvmlClocksEventReasonSwPowerCap
    assert ours["hw_thermal_slowdown"] == pynvml.nvmlClocksEventReasonHwThermalSlowdown
    assert sum(ours.values()) == pynvml.nvmlClocksEventReasonAll


def test_an_agent_refuses_before_any_rank_starts(library: Path, tmp_path: Path) -> None:
    plan = training_fixtures.plan(kind="cuda", python=sys.executable, variables={}, workflow=sys.executable)
    messages.write(plan, tmp_path / "launch_plan.json")
    agent = subprocess.Popen(
        [sys.executable, "-m", "throughline.launch.agent", str(tmp_path / "launch_plan.json"), "0"],
        env=nvml_double.variables(library, pid=4194304, gpu=63), stdin=subprocess.PIPE,
        stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert agent.wait(60) == 1 and agent.stdout is not None
    told = [messages.heard(line) for line in agent.stdout if line.startswith(messages.MARK)]
    assert Refusal(0, [GpuFault("GPU 0 is used by another process (4194304, 3.0 GiB)", 0)]) in told
    assert not list(tmp_path.glob("rank_*")) and not list(tmp_path.glob("throughline-*"))
