"""The manifests of a corpus: of the pairs of one sequence length, and of running text."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from throughline import files
from throughline.corpus.bpe import KIND, SHA256, SIZE
from throughline.corpus.source.published_dumps import LATEST
from throughline.corpus.text.vocabulary import Vocabulary
from throughline.datasets import manifest
from throughline.files import UserError


def merge_pairs(
    corpus: str, verified: Sequence[Path], vocabulary: Vocabulary, parameters: dict[str, Any], path: Path
) -> None:
    """Write the manifest of one sequence length from the verification results of all its shards.

    If masks are drawn while reading, the manifest lists the words that may replace a token (as `ranges` of their ids),
    and the masking parameters are part of the content's digest.
    UserError if shards differ in shape or vocabulary, if a name does not tell its split, or if there is no training
    example.
    """
    results = manifest.read_results(verified, "rows", _no_text(f"{corpus} has no training example"))
    shapes = {(result["sequence_length"], result["predictions"], result["vocabulary_sha256"]) for result in results}
    if len(shapes) != 1 or {shape[2] for shape in shapes} != {vocabulary.sha256}:
        listed = (f"{length}/{predictions}/{sha256[:12]}" for length, predictions, sha256 in sorted(shapes))
        raise UserError(
            f"the shards of {path} do not belong together",
            why=f"they differ in sequence length, predictions or vocabulary: {'; '.join(listed)}",
            next_step=f"make them again: {files.snakemake('--force', *map(str, verified))}",
        )
    ((length, predictions, _),) = shapes
    words: dict[str, Any] = {"size": len(vocabulary), "sha256": vocabulary.sha256}
    if "tokenizer" in parameters:
        words["tokenizer"] = parameters["tokenizer"]
    else:
        words["lower_case"] = parameters.get("lower_case", True)
    words |= {name: getattr(vocabulary, name) for name in ("pad", "unk", "cls", "sep", "mask")}
    content: list[Any] = [(result["file"], result["content_digest"]) for result in results]
    if parameters.get("dynamic"):
        from throughline.corpus.shards import masks

        words["words"] = masks.ranges(vocabulary.words)
        content.append({name: parameters[name] for name in ("predictions", "probability", "seed")})
    head = {"corpus": corpus, "sequence_length": length, "predictions": predictions, "vocabulary": words}
    facts = {"rows": sum(result["rows"] for result in results)}
    kept = "source", "rows", "sha256", "content_digest"
    manifest.write(path, head | _dated(parameters, path), parameters, facts, results, kept, content)


def merge_tokens(corpus: str, verified: Sequence[Path], parameters: dict[str, Any], path: Path) -> None:
    """Write the manifest of running text from the verification results of all its shards.

    UserError if there are no tokens to train on.
    """
    results = manifest.read_results(verified, "tokens", _no_text(f"{corpus} has no tokens to train on"))
    words = next(
        (result["vocabulary"] for result in results if "vocabulary" in result), {"size": SIZE, "sha256": SHA256}
    )
    head = {"kind": KIND, "corpus": corpus, "vocabulary": words, **_dated(parameters, path)}
    facts = {unit: sum(result[unit] for result in results) for unit in ("tokens", "documents")}
    kept = "tokens", "documents", "type", "offset", "sha256", "content_digest"
    content = [(Path(result["file"]).stem, result["content_digest"]) for result in results]
    manifest.write(path, head, parameters, facts, results, kept, content)


def facts(content: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return what a manifest says, as (name, text) for a report; KeyError if it is not that of a corpus."""
    said = [("corpus", str(content["corpus"]))]
    if "tokens" in content:
        unit = "tokens"
        text = f"{content['documents']:,} documents, read in windows at places drawn anew in each epoch"
        said.append(("text", text))
    else:
        unit = "rows"
        length = f"{content['sequence_length']} tokens, at most {content['predictions']} of them predicted"
        said.append(("sequence length", length))
        if content["parameters"].get("dynamic"):
            said.append(("masks", "drawn while reading, anew in each epoch"))
    for split in ("training", "test"):
        shards = [shard for shard in content["shards"] if (shard["split"] == "training") == (split == "training")]
        count = f"{len(shards)} shard{'' if len(shards) == 1 else 's'}"
        said.append((f"{split} {unit}", f"{sum(shard[unit] for shard in shards):,} in {count}"))
    words = content["vocabulary"]
    said.append(("vocabulary", f"{words['size']:,} entries, sha256 {words['sha256'][:12]}…"))
    return [*said, ("content digest", str(content["content_digest"]))]


def _dated(parameters: dict[str, Any], path: Path) -> dict[str, Any]:
    """Return what a manifest says about dumps without a date in their names: the dumps that were downloaded."""
    sources, folder = parameters.get("sources", [parameters]), path.parent.parent / "dump"
    names = [name for source in sources for name in source.get("dump", []) if name.endswith(LATEST)]
    dumps = {name: files.read_json(folder / f"{name}.json")["name"] for name in names}
    return {"dumps": dumps} if dumps else {}


def _no_text(what: str) -> UserError:
    return UserError(
        f"the corpus {what}",
        why="the dump has too few articles for so many shards, or none at all",
        next_step="use a larger dump, or fewer corpus.shards in config.yaml",
    )
