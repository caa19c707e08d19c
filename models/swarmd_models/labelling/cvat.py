"""CVAT for images 1.1: XML with an `<image name width height>` for each picture and `<box>` or `<polygon>` in it.

Read with expat alone; a file that declares a document type or an entity is refused before anything of it is expanded.
"""

from xml.parsers import expat

from swarmd_models.labelling import forms
from swarmd_models.labelling.forms import Box, LabelError, Labelled

_SHAPES = ("box", "polygon")
_OTHER_SHAPES = ("polyline", "points", "cuboid", "mask", "skeleton", "ellipse")
_MAX_DEPTH = 32
_MAX_POINTS = 10_000


class _Reader:
    """Takes the elements in."""

    def __init__(self) -> None:
        self.pictures: list[Labelled] = []
        self.owner = ""
        self._path: list[str] = []
        self._name: str | None = None
        self._size = (0, 0)
        self._boxes: list[tuple[str, Box]] = []

    def begin(self, tag: str, told: dict[str, str]) -> None:
        self._path.append(tag)
        if len(self._path) > _MAX_DEPTH:
            raise LabelError(f"elements stand {_MAX_DEPTH} deep in each other; this is no file of CVAT")
        if len(self._path) == 1 and tag != "annotations":
            raise LabelError(f"its first element is <{tag[:40]}>; export the task as 'CVAT for images 1.1'")
        if tag == "track":
            raise LabelError("it has tracks; export the task as 'CVAT for images 1.1', not for video")
        if tag == "image":
            self._begin_picture(told)
        elif tag in _OTHER_SHAPES and self._name is not None:
            raise LabelError(f"picture {forms.shown(self._name)} has a <{tag}>; boxes and polygons can be used")
        elif tag in _SHAPES and self._name is not None:
            self._take_shape(tag, told)

    def _begin_picture(self, told: dict[str, str]) -> None:
        if self._name is not None:
            raise LabelError("an <image> stands in another; export the task anew")
        if len(self.pictures) >= forms.MAX_PICTURES:
            raise LabelError(f"it has more than {forms.MAX_PICTURES} pictures; export in parts")
        if "name" not in told:
            raise LabelError(f"<image> number {len(self.pictures)} has no name; export the task anew")
        self._name, self._boxes = told["name"], []
        width, height = (
            forms.whole(told.get(side), f"{side} of {forms.shown(self._name)}", 1, forms.MAX_SIDE_PX)
            for side in ("width", "height")
        )
        self._size = width, height

    def _take_shape(self, tag: str, told: dict[str, str]) -> None:
        what = f"a {tag} of picture {forms.shown(self._name)}"
        forms.check_count(len(self._boxes) + 1, self._name or "")
        label = forms.label_of(told.get("label"), f"the label of {what}")
        if tag == "box":
            x1, y1, x2, y2 = (forms.number(told.get(key), f"{key} of {what}") for key in ("xtl", "ytl", "xbr", "ybr"))
        else:
            points = told.get("points", "").split(";")
            if not 3 <= len(points) <= _MAX_POINTS:
                raise LabelError(f"{what} has {len(points)} points; 3 to {_MAX_POINTS} are possible")
            pairs = [point.split(",") for point in points]
            if any(len(pair) != 2 for pair in pairs):
                raise LabelError(f"{what} has a point that is no x,y")
            xs = [forms.number(x, f"a point of {what}") for x, _ in pairs]
            ys = [forms.number(y, f"a point of {what}") for _, y in pairs]
            x1, y1, x2, y2 = min(xs), min(ys), max(xs), max(ys)
        self._boxes.append((label, forms.boxed(x1, y1, x2, y2, what)))

    def end(self, tag: str) -> None:
        self._path.pop()
        if tag == "image" and self._name is not None:
            self.pictures.append(Labelled(self._name, tuple(self._boxes), size=self._size))
            self._name = None

    def text(self, data: str) -> None:
        if self._path[-2:] == ["owner", "username"] and len(self.owner) < forms.MAX_NAME:
            self.owner += data

    @staticmethod
    def refuse(*what: object) -> None:
        del what
        raise LabelError("it declares a document type or an entity, which no file of CVAT does")


def read_cvat(data: bytes) -> list[Labelled]:
    """What a file "CVAT for images 1.1" says of its pictures; who owns the task is who labelled.

    Raises:
        LabelError: It is no such file, or a value is out of bounds.
    """
    reader = _Reader()
    parser = expat.ParserCreate()
    parser.buffer_text = True
    parser.StartElementHandler = reader.begin
    parser.EndElementHandler = reader.end
    parser.CharacterDataHandler = reader.text
    parser.StartDoctypeDeclHandler = reader.refuse
    parser.EntityDeclHandler = reader.refuse
    try:
        parser.Parse(data, True)
    except (expat.ExpatError, ValueError, LookupError) as error:
        raise LabelError(f"it is no XML ({error}); export it from the tool anew") from error
    by = forms.person(reader.owner)
    return [Labelled(one.name, one.boxes, by=by, size=one.size) for one in reader.pictures]
