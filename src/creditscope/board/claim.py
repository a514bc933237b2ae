"""The claim file: what is claimed of a method, and which reports audit it, each named by its hash.

No verdict stands in it: that follows from the facts of the reports and is computed when the claim is read. docs/claim.schema.json
is its JSON Schema.
"""

from __future__ import annotations

import datetime
import hashlib
import json
import re
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints

from creditscope.errors import CreditscopeError, fitted
from creditscope.files import dump_json, read_json, write_atomic

SCHEMA: Literal["creditscope-claim/1"] = "creditscope-claim/1"
FILE = "claim.json"
MAX_BYTES = 2**18
"""Of a claim; its reports have limits of their own."""
NAME = r"^[a-z0-9]+(-[a-z0-9]+)*$"


def _printable(text: str) -> str:
    if not text.isprintable():
        raise ValueError("must be one line of printable characters")
    return text


Line = Annotated[str, StringConstraints(max_length=300), AfterValidator(_printable)]
Words = Annotated[str, StringConstraints(min_length=1, max_length=120), AfterValidator(_printable)]
Address = Annotated[
    str, StringConstraints(max_length=300, pattern=r"^(https?://[A-Za-z0-9][A-Za-z0-9._~:/?#@!$&()*+,;=%-]*)?$")
]
Hash = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
Share = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
Shares = Annotated[tuple[Share, ...], Field(max_length=100)]


class Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Paper(Part):
    title: Words
    url: Address = ""
    year: int | None = Field(None, ge=1900, le=2200)


class Code(Part):
    """The code that trained the network."""

    name: Words
    version: Line = ""
    url: Address = ""
    licence: Line = ""


class Claimed(Part):
    """What is said of the method, by whoever says it."""

    accuracy: Share | None = None
    """Test accuracy, a fraction; None where none is claimed."""
    gamma: Annotated[float, Field(ge=-1, le=1, allow_inf_nan=False)] | None = None
    """Γ, the cosine between the method's credit and the gradient."""
    convention: Line = ""
    """What was averaged over what: seeds, layers, test set."""
    source: Line = ""
    """Where it stands: a table, a section, a README."""
    published: bool = False
    """False where nobody published it: the accuracy of the audited run itself, which the audit then meets by itself."""


class Evidence(Part):
    """One report beside the claim."""

    file: Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9-]{0,60}\.json$")]
    sha256: Hash
    certificate: Hash | None = None
    """Of the certificate inside the report, as `certificate_hash` computes it; None where it holds none."""


class Evaluation(Part):
    """One audit of the claim: the reports of its networks and what they were compared with."""

    kind: Literal["audit", "external"] = "audit"
    """`external`: an evaluation by others, which corrects or confirms the audit."""
    by: Words
    date: datetime.date
    device: Words
    protocol: Words
    """Version of the verdict policy, e.g. three-check/1.1."""
    reports: Annotated[tuple[Evidence, ...], Field(min_length=1, max_length=20)]
    seeds: Annotated[tuple[int, ...], Field(min_length=1, max_length=100)]
    """One for each accuracy that the reports state, in their order."""
    nulls: dict[Literal["matched", "bp", "kind unstated"], Shares] = Field(default_factory=dict)
    """Accuracies of the frozen-blocks nulls, in the order of the seeds."""
    bp_accuracy: Shares = ()
    """Accuracies of backpropagation on the same task."""
    spec: dict[str, Any] | None = None
    """Of the first report's run, where creditscope trained it: `claim check --retrain` trains it again."""
    recipe: Line = ""
    """What to run to get the reports."""
    note: Line = ""


class Claim(Part):
    """A claim on the board."""

    model_config = ConfigDict(frozen=True, extra="forbid", title="A claim of the board")

    schema_: Literal["creditscope-claim/1"] = Field(SCHEMA, alias="schema")
    name: Annotated[str, StringConstraints(pattern=NAME, max_length=80)]
    """Of the entry, and of its directory."""
    method: Words
    paper: Paper | None = None
    code: Code
    architecture: Words
    data: Words
    claimed: Claimed = Claimed()
    evaluations: Annotated[tuple[Evaluation, ...], Field(min_length=1, max_length=50)]
    note: Line = ""
    seal: Hash
    """SHA-256 of everything else in the file (`sealed`): a claim that was changed on the way is refused."""

    def to_dict(self) -> dict[str, Any]:
        return dict(json.loads(self.model_dump_json(by_alias=True)))


def seal_of(content: dict[str, Any]) -> str:
    """SHA-256 of the claim without its seal, as JSON with sorted keys."""
    return hashlib.sha256(dump_json({k: v for k, v in content.items() if k != "seal"})).hexdigest()


def certificate_hash(certificate: dict[str, Any]) -> str:
    """SHA-256 of a certificate's JSON with sorted keys."""
    return hashlib.sha256(dump_json(certificate)).hexdigest()


def sealed(content: dict[str, Any], source: str) -> Claim:
    """A claim from its fields; what is left out has its default, and the seal is made here."""
    whole = claim_of({"schema": SCHEMA, **content, "seal": "0" * 64}, source).to_dict()
    return claim_of({**whole, "seal": seal_of(whole)}, source)


def write_claim(claim: Claim, directory: Path) -> Path:
    path = directory / FILE
    write_atomic(path, dump_json(claim.to_dict()))
    return path


def read_claim(directory: Path) -> Claim:
    """The claim of an entry's directory, as it was sealed."""
    path = directory / FILE
    content = read_small(path, MAX_BYTES, "a claim")
    claim = claim_of(content, str(path))
    if seal_of(content) != claim.seal:
        raise CreditscopeError(
            f"{path} was changed after it was sealed; `creditscope claim seal {directory}` seals it again, if this was intended"
        )
    if claim.name != directory.resolve().name:
        raise CreditscopeError(
            f"{path} is named {claim.name!r} and its directory {directory.resolve().name!r}; give both one name"
        )
    return claim


def read_small(path: Path, most: int, what: str) -> Any:
    """JSON of a file of its own directory, with a limit of its own; a link is not followed."""
    try:
        linked = path.is_symlink()
    except OSError as error:
        raise CreditscopeError(f"cannot read {path}: {error.strerror or error}") from None
    if linked:
        raise CreditscopeError(f"{path} is a symbolic link; {what} must be a regular file")
    return read_json(path, what, most)


def claim_of(content: Any, source: str) -> Claim:
    """A claim from JSON data; what does not fit is one line."""
    schema = content.get("schema") if isinstance(content, dict) else None
    if schema != SCHEMA:
        newer = re.fullmatch(r"creditscope-claim/(\d{1,9})", schema) if isinstance(schema, str) else None
        what = f"{schema[:80]!r}" if isinstance(schema, str) else f"a {type(schema).__name__}"
        upgrade = "; upgrade creditscope" if newer and int(newer[1]) > 1 else ""
        raise CreditscopeError(f"{source} has schema {what}; this creditscope reads {SCHEMA!r}{upgrade}")
    return fitted(Claim, content, source)
