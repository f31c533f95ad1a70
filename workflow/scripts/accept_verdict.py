"""Judge an acceptance from the records that are there.

acceptance: what was asked for, as JSON
output: acceptance.json
text: one paragraph for an administrator or a vendor
page: the same to look at
standings: every place beside its peers, as CSV
pairs: every pair of nodes at every message size, as CSV
exclude: the names of the nodes that have not passed, as a list of hosts for Slurm
away: why nodes cannot be measured now, by their numbers, as JSON
"""

from pathlib import Path


def main(
    acceptance: str,
    output: Path,
    text: Path,
    page: Path,
    standings: Path,
    pairs: Path,
    exclude: Path,
    away: dict[str, str] | None = None,
) -> None:
    from throughline.acceptance import verdict
    from throughline.files import write_json, write_text
    from throughline.launch import fleet
    from throughline.report.render import acceptance as shown
    from throughline.report.render.page import write_acceptance
    from throughline.study.acceptance import read_plan

    asked = read_plan(acceptance)
    judged = verdict.judge(asked, away={int(node): why for node, why in (away or {}).items()})
    write_json(output, judged.model_dump(by_alias=True))
    write_text(text, verdict.paragraph(judged) + "\n")
    write_acceptance(judged, page)
    shown.write(judged, standings, pairs)
    names = {} if asked.fleet.hosts == "simulated" else fleet.node_names()
    bad = [names[node].rpartition("@")[2] for node in verdict.not_passed(judged) if node in names]
    write_text(exclude, "".join(f"{name}\n" for name in [",".join(bad)] if name), mode=0o600)
