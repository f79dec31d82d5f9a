#!/usr/bin/env python3
"""Holds the description of a token service to the standard, and exchanges with one to the description.

    openapi.py DOCUMENT < EXCHANGES

Each exchange has a path, a method, what was sent (or null), whether it is what the description asks for, the status, the kind of
content and the text of the answer.
"""

import json
import sys

from jsonschema import Draft202012Validator
from openapi_spec_validator import OpenAPIV31SpecValidator, validate

document = json.load(open(sys.argv[1]))
validate(document, cls=OpenAPIV31SpecValidator)
wrong = []


def complaints(schema, value):
    root = {**schema, "components": document["components"]}
    Draft202012Validator.check_schema(root)
    return [error.message[:200] for error in Draft202012Validator(root).iter_errors(value)]


def look(exchange):
    operation = document["paths"][exchange["path"]][exchange["method"]]
    if exchange["sent"] is not None:
        schema = operation["requestBody"]["content"]["application/json"]["schema"]
        found = complaints(schema, exchange["sent"])
        if exchange["fits"] and found:
            yield f"the request does not fit: {found}"
        if not exchange["fits"] and not found:
            yield "the description allows what the service refuses"
    responses = operation["responses"]
    response = responses.get(str(exchange["status"]), responses.get("default"))
    if response is None:
        yield f"nobody said that it may answer {exchange['status']}"
        return
    kind = exchange["kind"].split(";")[0]
    if kind not in response["content"]:
        yield f"nobody said that it may answer {kind}"
        return
    schema = response["content"][kind]["schema"]
    answer = json.loads(exchange["answer"]) if kind == "application/json" else exchange["answer"]
    for complaint in complaints(schema, answer):
        yield f"the answer does not fit: {complaint}"


exchanges = json.load(sys.stdin)
for exchange in exchanges:
    for complaint in look(exchange):
        wrong.append(f"{exchange['method']} {exchange['path']} {json.dumps(exchange['sent'])}: {exchange['status']}: {complaint}")
print("\n".join(wrong) or f"{len(exchanges)} exchanges fit")
sys.exit(1 if wrong else 0)
