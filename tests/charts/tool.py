"""Renders the chart with the real Helm, and holds objects against the schemas of Kubernetes and of the operators.

Reads a list of requests as JSON from standard input, writes a list of answers to standard output:
{"render": VALUES, "kubernetes": "1.35"} gives {"objects", "notes", "lint", "problems"} or {"refused"};
{"objects": [...], "kubernetes": "1.35"} gives {"problems"}.
"""

import json
import pathlib
import sys

import helm_python as helm
import jsonschema
import kubernetes_validate
import yaml

ROOT = pathlib.Path(__file__).parents[2]
CHART = str(ROOT / "deploy/helm/inference-planner-exporter")
SCHEMAS = pathlib.Path(__file__).parent / "schemas"


def schema_of(thing):
    """Our own schema of a custom resource, or None."""
    name = f"{thing['apiVersion'].replace('/', '_')}_{thing['kind']}.json"
    file = SCHEMAS / name
    return json.loads(file.read_text()) if file.exists() else None


def problems(thing, version):
    place = f"{thing.get('kind')} {thing.get('metadata', {}).get('name')}"
    schema = schema_of(thing)
    if schema is not None:
        errors = jsonschema.Draft202012Validator(schema).iter_errors(thing)
        return [f"{place}: {error.json_path}: {error.message}" for error in errors]
    try:
        kubernetes_validate.validate(thing, version, strict=True)
    except kubernetes_validate.ValidationError as error:
        return [f"{place}: {'.'.join(str(part) for part in error.path)}: {error.message}"]
    except kubernetes_validate.SchemaNotFoundError:
        return [f"{place}: there is no schema for it"]
    return []


def rendered(values, version):
    try:
        files = helm.Chart.load(CHART).render(values, name="planner", namespace="llm")
    except helm.HelmError as error:
        return {"refused": str(error)}
    notes = [text for name, text in files.items() if name.endswith("NOTES.txt")]
    texts = [text for name, text in sorted(files.items()) if name.endswith(".yaml")]
    objects = [thing for text in texts for thing in yaml.safe_load_all(text) if thing]
    lint = helm.lint(CHART, values, strict=True, kube_version=f"v{version}.0")
    # Severity 1 is information: an icon is recommended.
    complaints = [message["error"] for message in lint["messages"] if message["severity"] > 1]
    return {
        "objects": objects,
        "notes": "".join(notes),
        "lint": complaints + lint["errors"],
        "problems": [problem for thing in objects for problem in problems(thing, version)],
    }


def answer(request):
    if "render" in request:
        return rendered(request["render"], request["kubernetes"])
    return {"problems": [problem for thing in request["objects"] for problem in problems(thing, request["kubernetes"])]}


helm.disable_logging()
json.dump([answer(request) for request in json.load(sys.stdin)], sys.stdout)
