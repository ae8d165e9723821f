"""Serves weather.forecast with the Python standard library alone."""

import json
import sys
import time

import nats

TYPE, URI, VERSION = "weather.forecast", "#/weather/forecast", "1.0.0"


class Problem(Exception):
    """A failure that the model may read."""

    def __init__(self, message, code="tool_failed"):
        super().__init__(message)
        self.code = code


def forecast(key, data):
    """Answers a call. key is the same whenever the call comes again."""
    if data["city"] == "Atlantis":
        raise Problem("the weather is unknown in Atlantis")
    return {"text": "sunny in " + data["city"]}


def answer(call):
    event = {
        "specversion": "1.0", "id": call["id"] + "-answer", "source": TYPE, "parentid": call["id"], "to": call.get("redirectto"),
        **{name: call.get(name) for name in ("subject", "accesscontrol", "traceparent", "tracestate")},
    }
    try:
        if call["dataschema"].rpartition("/")[2] != VERSION:
            raise Problem(f"{call['dataschema']} is not served here", "contract_missing")
        data = forecast(call["id"], call["data"])
        return event | {"type": TYPE + ".done", "dataschema": call["dataschema"], "data": data}
    except Problem as p:
        code, message = p.code, str(p)
    except Exception as e:
        print(f"call {call['id']}: {e!r}", file=sys.stderr)  # what went wrong inside is not for others to read
        code, message = "internal", "internal error"
    problem = {"errorName": code, "errorMessage": message, "errorStack": None, "code": code, "retryable": False}
    return event | {"type": f"sys.{TYPE}.error", "dataschema": URI + "/0.0.0", "data": problem}


def read(message):
    """The call in a message; None when it is not one: nobody can be told, and it would come again for ever."""
    try:
        call = json.loads(message.data)
        if call["id"] != message.subject.rsplit(".", 1)[1]:
            raise ValueError("the id is not that of the subject")
        return call
    except (ValueError, KeyError, TypeError) as e:
        print(f"no call on {message.subject}: {e!r}", file=sys.stderr)
        return None


def serve(connection, message):
    root, kind, rest = message.subject.split(".", 2)
    # What is not "out" is void: nobody waits for that call any more.
    if kind == "out" and (call := read(message)):
        event = json.dumps(answer(call)).encode()
        headers = {"Content-Type": "application/cloudevents+json", "Nats-Expected-Last-Subject-Sequence": "0"}
        connection.store(f"{root}.in.{rest}", event, headers)
    connection.acknowledge(message)


def main():
    connection = nats.connect(inbox_prefix="_INBOX_agentd_weather", name=TYPE)
    while True:
        message = connection.fetch("AGENTD_OUT", "svc_local_weather_forecast")
        if message:
            serve(connection, message)


while True:
    try:
        main()
    except (OSError, TimeoutError) as e:  # what was not acknowledged is delivered again
        print(f"trying again: {e!r}", file=sys.stderr)
        time.sleep(1)
