"""The files that a program runs are found, also those that a package finds by itself."""

from pathlib import Path

from throughline import sources

SCRIPTS = Path(__file__).parents[2] / "workflow" / "scripts"
TOPICS = set((sources.ROOT / "report" / "topics").glob("*.py"))


def test_a_changed_topic_makes_the_tables_the_plots_and_the_page_again_but_no_summary() -> None:
    assert len(TOPICS) > 10
    assert {path.stem for path in TOPICS if "= Topic(" not in path.read_text(encoding="utf-8")} == {"__init__"}
    for script in ("tables", "plots", "report"):
        assert set(sources.closure(SCRIPTS / f"{script}.py")) >= TOPICS, script
    assert not TOPICS & set(sources.closure(SCRIPTS / "summarize.py"))


def test_modules_come_in_the_order_of_their_names() -> None:
    names = [module.__name__ for module in sources.every_module("throughline.report.topics")]
    assert names == sorted(names) and len(names) == len(TOPICS) - 1
