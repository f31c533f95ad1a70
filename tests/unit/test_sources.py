"""The files that a program runs are found, also those that a package finds by itself."""

from pathlib import Path

from throughline import sources

SCRIPTS = Path(__file__).parents[2] / "workflow" / "scripts"
TOPICS = set((sources.ROOT / "report" / "topics").glob("*.py"))


def test_a_topic_is_an_input_of_what_prints_topics() -> None:
    """So a changed topic makes the tables, the plots and the page again."""
    assert len(TOPICS) > 10
    for script in ("tables", "plots", "report"):
        assert set(sources.closure(SCRIPTS / f"{script}.py")) >= TOPICS, script


def test_every_file_of_topics_has_one() -> None:
    assert {path.stem for path in TOPICS if "= Topic(" not in path.read_text(encoding="utf-8")} == {"__init__"}


def test_a_summary_does_not_depend_on_how_topics_are_shown() -> None:
    assert not TOPICS & set(sources.closure(SCRIPTS / "summarize.py"))


def test_modules_come_in_the_order_of_their_names() -> None:
    names = [module.__name__ for module in sources.every_module("throughline.report.topics")]
    assert names == sorted(names) and len(names) == len(TOPICS) - 1
