"""The forms that a value is shown in."""

import base64
import json
import sys

from kernel_charts import chart_of

MIME = {
    "html": "text/html",
    "markdown": "text/markdown",
    "svg": "image/svg+xml",
    "png": "image/png",
    "jpeg": "image/jpeg",
    "pdf": "application/pdf",
    "latex": "text/latex",
    "json": "application/json",
    "javascript": "application/javascript",
}


def representations(value):
    """Every form that a value has of itself. One that it cannot make is left out."""
    found = {}
    bundle = attempt(value, "_repr_mimebundle_")
    if isinstance(bundle, tuple):
        bundle = bundle[0]
    if isinstance(bundle, dict):
        found = {name: bundle[mime] for name, mime in MIME.items() if mime in bundle}
    for name in MIME:
        if name not in found:
            form = attempt(value, f"_repr_{name}_")
            if form is not None:
                found[name] = form[0] if isinstance(form, tuple) else form
    kind = type(value)
    if kind.__module__.startswith("matplotlib.figure") and "png" not in found:
        import io

        image = io.BytesIO()
        value.savefig(image, format="png", bbox_inches="tight")
        found["png"] = image.getvalue()
        chart = chart_of(value)
        if chart:
            found["chart"] = chart
    if isinstance(value, (list, dict)) and "json" not in found:
        found["json"] = value
    pandas = sys.modules.get("pandas")
    if pandas and isinstance(value, getattr(pandas, "DataFrame", ())):
        table = json.loads(value.to_json(orient="split", date_format="iso"))
        found["data"] = {str(name): [row[at] for row in table["data"]] for at, name in enumerate(table["columns"])}
    try:
        text = repr(value)
    except Exception as error:
        text = f"<{kind.__name__} that cannot be shown: {type(error).__name__}>"
    if len(text) > 1 and text[0] == text[-1] and text[0] in "'\"":
        text = text[1:-1]
    return {"text": text, **as_json(found)}


def bundled(bundle):
    """What a caller has put into forms already, by their MIME types."""
    text = bundle.get("text/plain")
    forms = as_json({name: bundle[mime] for name, mime in MIME.items() if mime in bundle})
    return {"text": text if isinstance(text, str) else "", **forms}


def as_json(found):
    result = {}
    for name, form in found.items():
        if isinstance(form, bytes):
            form = base64.b64encode(form).decode()
        try:
            # What JSON has no word for, as NaN, would spoil the whole answer.
            json.dumps(form, allow_nan=False)
        except (TypeError, ValueError):
            continue
        result[name] = form
    return result


def attempt(value, method):
    # A class has the methods of its instances, and cannot be asked like one of them.
    if isinstance(value, type):
        return None
    try:
        made = getattr(value, method, None)
        return made() if callable(made) else None
    except Exception:
        return None
