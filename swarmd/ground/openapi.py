"""The OpenAPI 3.1 document of `/api/v1`, generated from the table of answers and the structs of `rows`."""

from dataclasses import dataclass
from typing import Any

import msgspec

from swarmd import __version__
from swarmd.ground import rows
from swarmd.ground.guard import ACTS_PATH


@dataclass(frozen=True, slots=True)
class Parameter:
    """One value that a request may carry."""

    name: str
    place: str
    """"query" or "path"."""
    type: str
    """"string", "number" or "integer"."""
    means: str


@dataclass(frozen=True, slots=True)
class Answer:
    """One address and what it answers."""

    path: str
    summary: str
    struct: type[msgspec.Struct] | None
    """What its JSON is; None: see `media`."""
    parameters: tuple[Parameter, ...] = ()
    media: str = "application/json"
    is_list: bool = False
    missing: str = ""
    """When there is none, which is said with 404; "": there always is one."""


_FROM = Parameter("from_s", "query", "number", "first moment, UTC seconds since 1970 (default: the beginning)")
_TO = Parameter("to_s", "query", "number", "last moment (default: the newest)")

ANSWERS = (
    Answer("/api/v1/site", "who looks, at which swarm, and the assets of the site map", rows.Site),
    Answer(
        "/api/v1/snapshot",
        "the whole picture; of now with the number that its changes go on from, or of a moment of the past",
        rows.Snapshot,
        (Parameter("at_s", "query", "number", "a moment of the past (default: now)"),),
    ),
    Answer(
        "/api/v1/changes",
        "what changes from then on, as server-sent events: each `data:` line is a `Changes`, at least one a second",
        rows.Changes,
        (
            Parameter("epoch", "query", "string", "of the snapshot"),
            Parameter("after", "query", "integer", "`seq` of the snapshot, or of the last changes that were read"),
        ),
        "text/event-stream",
    ),
    Answer(
        "/api/v1/history",
        "what changed, oldest first, in pages",
        rows.History,
        (
            _FROM,
            _TO,
            Parameter("kind", "query", "string", f"which, joined by commas: {', '.join(rows.KINDS)} (default: all)"),
            Parameter("cursor", "query", "string", "`next` of the page before"),
            Parameter("limit", "query", "integer", "changes of a page, 1 to 2000 (default 1000)"),
        ),
    ),
    Answer("/api/v1/timeline", "of what there is a past, and its marks", rows.Timeline, (_FROM, _TO)),
    Answer(
        "/api/v1/objects/{id}/evidence",
        "the sightings that an object is made of",
        rows.Evidence,
        (Parameter("id", "path", "string", "the object's"),),
        is_list=True,
    ),
    Answer(
        "/api/v1/thumb/{name}",
        "a small picture of something seen, at most 192 x 144 pixels and 6 KiB",
        None,
        (Parameter("name", "path", "string", "`thumb` of an object or a sighting, 32 hexadecimal digits"),),
        "image/jpeg",
        missing="nobody who can be reached has it, or it is not here yet: ask again",
    ),
    Answer(
        "/api/v1/releases/prepared",
        "an order about a release, in words and as the file that officers sign elsewhere; nothing is told to the swarm",
        rows.Prepared,
        (
            Parameter("what", "query", "string", "`halt`, `revoke` or `force`"),
            Parameter("model", "query", "string", "of the release"),
            Parameter("release", "query", "string", "its digest, 64 hexadecimal digits"),
            Parameter("reason", "query", "string", "of a halt or a revocation, at most 256 characters"),
            Parameter("stage", "query", "integer", "which a `force` opens, counted from 0"),
        ),
    ),
    Answer("/api/v1/export/objects.geojson", "the objects, for a GIS", None, (), "application/geo+json"),
    Answer("/api/v1/export/objects.csv", "the objects, for a spreadsheet", None, (), "text/csv"),
    Answer("/api/v1/export/members.csv", "the members, for a spreadsheet", None, (), "text/csv"),
    Answer("/api/v1/export/links.csv", "links that a member says are not good", None, (), "text/csv"),
    Answer("/api/v1/export/findings.csv", "the findings in the fields of IEC TS 62446-3", None, (), "text/csv"),
    Answer("/api/v1/export/findings.kml", "the same for a globe", None, (), "application/vnd.google-earth.kml+xml"),
    Answer(
        "/api/v1/export/findings.kmz",
        "the same with the pictures that are to be had",
        None,
        (),
        "application/vnd.google-earth.kmz",
    ),
    Answer("/api/v1/export/findings.pdf", "the same as a report, with room for a person", None, (), "application/pdf"),
    Answer(
        "/api/v1/audit",
        "who did what on which revision, here and as far as others told; the newest first, and whether the chain holds",
        rows.AuditLog,
        (Parameter("limit", "query", "integer", "lines, 1 to 500 (default 100)"),),
    ),
    Answer("/api/v1/openapi.json", "this document", None),
)
"""Every address of the API that is asked with GET."""


@dataclass(frozen=True, slots=True)
class Deed:
    """One address to which an operator posts JSON."""

    path: str
    summary: str
    body: type[msgspec.Struct]
    struct: type[msgspec.Struct]
    needs_token: bool = True


DEEDS = (
    Deed("challenge", "something that only the holder of a key can answer", rows.Nothing, rows.Challenge, False),
    Deed("login", "prove to hold an operator's key", rows.Login, rows.Session, False),
    Deed("logout", "end the token", rows.Nothing, rows.Done),
    Deed("draft", "the bytes of a review, to be signed with the operator's key", rows.Wish, rows.Draft),
    Deed("review", "hand over a review that was signed", rows.SignedDraft, rows.Done),
    Deed("act", "dismiss a failed member, have one go away, start or stop its eye", rows.Act, rows.Done),
)
"""What operators do, below `guard.ACTS_PATH`."""


def document() -> dict[str, Any]:
    """The document."""
    structs = [answer.struct for answer in ANSWERS if answer.struct is not None]
    structs += [struct for deed in DEEDS for struct in (deed.body, deed.struct)]
    _, components = msgspec.json.schema_components(
        [*structs, rows.Change, rows.Problem], ref_template="#/components/schemas/{name}"
    )
    # What `msgspec.Raw` holds is one of the rows; its schema says so where msgspec cannot know it.
    components["Change"]["properties"]["row"] = {
        "anyOf": [{"$ref": f"#/components/schemas/{kind.capitalize()}"} for kind in rows.KINDS] + [{"type": "null"}]
    }
    return {
        "openapi": "3.1.0",
        "info": {"title": "swarmd ground", "version": __version__, "description": (rows.__doc__ or "").strip()},
        "paths": {answer.path: {"get": _operation(answer)} for answer in ANSWERS}
        | {f"{ACTS_PATH}{deed.path}": {"post": _deed(deed)} for deed in DEEDS},
        "components": {
            "schemas": components,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer", "description": "`Session.token`"}},
        },
    }


def _operation(answer: Answer) -> dict[str, Any]:
    schema: dict[str, Any] = {}
    if answer.struct is not None:
        schema = {"$ref": f"#/components/schemas/{answer.struct.__name__}"}
    if answer.is_list:
        schema = {"type": "array", "items": schema}
    problem = {"application/json": {"schema": {"$ref": "#/components/schemas/Problem"}}}
    return {
        "summary": answer.summary,
        "parameters": [
            {
                "name": one.name,
                "in": one.place,
                "required": one.place == "path",
                "description": one.means,
                "schema": {"type": one.type},
            }
            for one in answer.parameters
        ],
        "responses": {
            "200": {"description": answer.summary, "content": {answer.media: {"schema": schema} if schema else {}}},
            "400": {"description": "an argument is wrong", "content": problem},
            **({"404": {"description": answer.missing, "content": problem}} if answer.missing else {}),
        },
    }


def _deed(deed: Deed) -> dict[str, Any]:
    def json(struct: type[msgspec.Struct]) -> dict[str, Any]:
        return {"application/json": {"schema": {"$ref": f"#/components/schemas/{struct.__name__}"}}}

    refusals = {
        "400": "it is refused, in words",
        "403": "no `Origin` of this server, no token that holds, or a key that is no operator's",
        "409": "others have said something meanwhile",
    }
    return {
        "summary": deed.summary,
        "requestBody": {"required": True, "content": json(deed.body)},
        "security": [{"token": []}] if deed.needs_token else [],
        "responses": {"200": {"description": deed.summary, "content": json(deed.struct)}}
        | {status: {"description": text, "content": json(rows.Problem)} for status, text in refusals.items()},
    }
