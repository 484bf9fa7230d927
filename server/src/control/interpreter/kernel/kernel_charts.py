"""What is drawn in a figure of matplotlib, as data."""

import math
import re

# matplotlib's own names for what nobody has named.
UNNAMED = re.compile(r"_(?:child|container|nolegend)?(\d*)_?\Z")
UNIT = re.compile(r"[(\[]([^()\[\]]+)[)\]]\s*\Z")


def chart_of(figure):
    """None for a figure that has nothing in it, or that cannot be read."""
    try:
        charts = [read(axes) for axes in figure.axes]
        if len(charts) <= 1:
            return charts[0] if charts else None
        title = (figure._suptitle.get_text() if figure._suptitle else None) or None
        return {"type": "superchart", "title": title, "elements": charts}
    except Exception:
        return None


def read(axes):
    from matplotlib.collections import PathCollection
    from matplotlib.lines import Line2D
    from matplotlib.patches import PathPatch, Rectangle, Wedge

    drawn = [one for one in axes.get_children() if isinstance(one, (Line2D, PathPatch, Rectangle, Wedge, PathCollection))]
    drawn = [one for one in drawn if one is not axes.patch]

    def only(*kinds):
        return bool(drawn) and all(isinstance(one, kinds) for one in drawn)

    if only(Wedge):
        return {"type": "pie", "title": axes.get_title() or None, "elements": [wedge(one, index) for index, one in enumerate(drawn)]}
    if only(Line2D):
        elements = [series(one.get_label(), "Line", index, *one.get_data(orig=True)) for index, one in enumerate(drawn)]
        return {"type": "line", **plane(axes), **ticks(axes), "elements": elements}
    if only(PathCollection):
        elements = [series(one.get_label(), "Scatter", index, *offsets(axes, one)) for index, one in enumerate(drawn)]
        return {"type": "scatter", **plane(axes), **ticks(axes), "elements": elements}
    if only(Rectangle) and axes.containers:
        return bars(axes)
    if only(PathPatch, Line2D):
        return boxes(axes, [one for one in drawn if isinstance(one, PathPatch)], [one for one in drawn if isinstance(one, Line2D)])
    return {"type": "unknown", "title": axes.get_title() or None, "elements": []}


def plane(axes, swapped=False):
    labels = [axes.get_xlabel() or None, axes.get_ylabel() or None]
    x, y = reversed(labels) if swapped else labels
    return {"title": axes.get_title() or None, "x_label": x, "y_label": y, "x_unit": unit(x), "y_unit": unit(y)}


def unit(label):
    found = label and UNIT.search(label)
    return found[1] if found else None


def ticks(axes):
    found = {}
    for name, axis in (("x", axes.xaxis), ("y", axes.yaxis)):
        found[f"{name}_scale"] = scale(axis)
        dates = found[f"{name}_scale"] == "datetime"
        found[f"{name}_ticks"] = [date(tick) if dates else plain(tick) for tick in axis.get_ticklocs()]
        found[f"{name}_tick_labels"] = [label.get_text() for label in axis.get_ticklabels()]
    return found


def scale(axis):
    # Its name has changed between versions.
    converter = axis.get_converter() if hasattr(axis, "get_converter") else getattr(axis, "converter", None)
    kind = type(converter).__name__
    if "Date" in kind:
        return "datetime"
    return "categorical" if "Category" in kind else axis.get_scale()


def date(number):
    from matplotlib.dates import num2date

    return num2date(number).isoformat()


def named(label, kind, index):
    label = str(label)
    return f"{kind} {index}" if UNNAMED.match(label) else label


def series(label, kind, index, xs, ys):
    return {"label": named(label, kind, index), "points": [[plain(x), plain(y)] for x, y in zip(xs, ys)]}


def offsets(axes, collection):
    points = collection.get_offsets()
    xs, ys = [x for x, _ in points], [y for _, y in points]
    return ([date(x) for x in xs] if scale(axes.xaxis) == "datetime" else xs, [date(y) for y in ys] if scale(axes.yaxis) == "datetime" else ys)


def plain(value):
    """As JSON has it. What is no number there is nothing."""
    if type(value).__name__ == "datetime64":
        return str(value)
    if hasattr(value, "item"):
        value = value.item()
    if hasattr(value, "isoformat"):
        return value.isoformat()
    if isinstance(value, str):
        return value
    number = float(value)
    if not math.isfinite(number):
        return None
    return int(number) if isinstance(value, int) else number


def wedge(patch, index):
    return {"label": named(patch.get_label(), "Slice", index), "angle": round(plain(abs(patch.theta2 - patch.theta1)), 9), "radius": plain(patch.r)}


def label_at(axis, place):
    """What stands below that place, or the place itself."""
    for location, label in zip(axis.get_ticklocs(), axis.get_ticklabels()):
        if label.get_text() and abs(location - place) < 1e-9:
            return label.get_text()
    return f"{place:g}"


def bars(axes):
    lying = all(getattr(container, "orientation", "vertical") == "horizontal" for container in axes.containers)
    elements = []
    for index, container in enumerate(axes.containers):
        for bar in container:
            middle = bar.get_y() + bar.get_height() / 2 if lying else bar.get_x() + bar.get_width() / 2
            elements.append(
                {
                    "label": label_at(axes.yaxis if lying else axes.xaxis, middle),
                    "value": plain(bar.get_width() if lying else bar.get_height()),
                    "group": named(container.get_label(), "Group", index),
                }
            )
    return {"type": "bar", **plane(axes, lying), "elements": elements}


def boxes(axes, patches, lines):
    # Whiskers go along the values.
    lying = any(len(set(map(float, line.get_ydata()))) == 1 and beyond(line, patches) for line in lines)
    elements = []
    for patch in patches:
        across, along = ([float(point[one]) for point in patch.get_path().vertices[:4]] for one in ((1, 0) if lying else (0, 1)))
        low, high = min(along), max(along)
        values, outliers, medians = [low, high], [], []
        for line in lines:
            places, found = ([float(one) for one in data] for data in (reversed(line.get_data()) if lying else line.get_data()))
            if not places or not all(min(across) - 1e-9 <= place <= max(across) + 1e-9 for place in places):
                continue
            if line.get_linestyle() in ("None", "", " "):
                outliers += found
                continue
            values += found
            if len(set(found)) == 1 and low <= found[0] <= high:
                medians.append((max(places) - min(places), found[0]))
        elements.append(
            {
                "label": label_at(axes.yaxis if lying else axes.xaxis, (min(across) + max(across)) / 2),
                "min": plain(min(values)),
                "first_quartile": plain(low),
                "median": plain(max(medians)[1] if medians else (low + high) / 2),
                "third_quartile": plain(high),
                "max": plain(max(values)),
                "outliers": [plain(one) for one in outliers],
            }
        )
    return {"type": "box_and_whisker", **plane(axes, lying), "elements": elements}


def beyond(line, patches):
    """Whether a line leaves all boxes sideways."""
    spans = [[float(x) for x, _ in patch.get_path().vertices[:4]] for patch in patches]
    return any(all(x < min(span) - 1e-9 or x > max(span) + 1e-9 for span in spans) for x in map(float, line.get_xdata()))
