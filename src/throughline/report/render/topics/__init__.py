"""The topics of the report in the order of the page. A topic is a file here, and a name in TOPICS."""

from throughline.report.render.topics import (
    comparisons,
    convergence,
    cost,
    equivalence,
    figures,
    largest,
    memory,
    precisions,
    split,
    throughput,
    use,
    work,
)
from throughline.report.topics import Topic

TOPICS: tuple[Topic, ...] = tuple(
    module.TOPIC
    for module in (
        *(throughput, split, equivalence, figures, memory, use, work, cost),
        *(comparisons, largest, convergence, precisions),
    )
)
