"""Serves weather.forecast with the Python standard library alone."""

import json
import sys
import time

import nats

TYPE, URI = "weather.forecast", "#/weather/forecast"


class Problem(Exception):
    """A failure that the model may read."""


def forecast(key, data):
    """Answers a call. key is the same whenever the call comes again."""
    if data["city"] == "Atlantis":
        raise Problem("the weather is unknown in Atlantis")
    return {"text": "sunny in " + data["city"]}


def answer(call):
    event = {
        "specversion": "1.0", "id": call["id"] + "-answer", "source": TYPE, "subject": call["subject"],
        "parentid": call["id"], "accesscontrol": call.get("accesscontrol"), "to": call.get("redirectto"),
    }
    try:
        data = forecast(call["id"], call["data"])
        return event | {"type": TYPE + ".done", "dataschema": call["dataschema"], "data": data}
    except Problem as p:
        code, message = "tool_failed", str(p)
    except Exception as e:
        print(f"call {call['id']}: {e!r}", file=sys.stderr)  # what went wrong inside is not for others to read
        code, message = "internal", "internal error"
    problem = {"errorName": code, "errorMessage": message, "errorStack": None, "code": code, "retryable": False}
    return event | {"type": f"sys.{TYPE}.error", "dataschema": URI + "/0.0.0", "data": problem}


def serve(connection, message):
    root, kind, rest = message.subject.split(".", 2)
    if kind == "out":  # else it is void: nobody waits for that call any more
        event = json.dumps(answer(json.loads(message.data))).encode()
        headers = {"Content-Type": "application/cloudevents+json", "Nats-Expected-Last-Subject-Sequence": "0"}
        connection.store(f"{root}.in.{rest}", event, headers)
    connection.acknowledge(message)


def main():
    connection = nats.connect(inbox_prefix="_INBOX_weather", name=TYPE)
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
