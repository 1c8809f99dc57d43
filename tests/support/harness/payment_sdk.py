"""Pays with the official SDK of a payment provider, which repeats a request on its own.

Arguments: the base of the API's URLs, how often a request is repeated, milliseconds to wait for a reply.
Each line of the input is a call, as JSON: `call` (see CALLS), `params` or `id`, and `idempotency_key`
unless the SDK is to make one of its own. The calls run at the same time. Each line of the output is what
came of one, in the order of the input: `http_status`, `headers` (names in lower case) and `body` of the
last reply, or null where there was none; for a failure also `error`, which is the SDK's name for it, and
`message`.
"""

import json
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue
from threading import Thread

# Whatever the environment says, everything stays on loopback.
for name in [name for name in os.environ if name.lower().endswith("_proxy")]:
    del os.environ[name]

import stripe

stripe.enable_telemetry = False

CALLS = {
    "pay": lambda client, call, options: client.v1.payment_intents.create(
        call["params"], options
    ),
    "send": lambda client, call, options: client.v2.money_management.outbound_payments.create(
        call["params"], options
    ),
    "delete": lambda client, call, options: client.v2.core.event_destinations.delete(
        call["id"], options=options
    ),
}


def make(client, call):
    key = call.get("idempotency_key")
    options = {} if key is None else {"idempotency_key": key}
    try:
        reply = CALLS[call["call"]](client, call, options).last_response
        return {
            "http_status": reply.code,
            "headers": lower(reply.headers),
            "body": reply.data,
        }
    except stripe.StripeError as error:
        return {
            "http_status": error.http_status,
            "headers": lower(error.headers),
            "body": error.json_body,
            "error": type(error).__name__,
            "message": error.user_message,
        }


def lower(headers):
    return {name.lower(): value for name, value in (headers or {}).items()}


def report(outcomes):
    while outcome := outcomes.get():
        print(json.dumps(outcome.result()), flush=True)


def main(base, repeats, patience):
    client = stripe.StripeClient(
        "sk_test_of_nobody",
        base_addresses={name: base for name in ["api", "connect", "files", "meter_events"]},
        max_network_retries=int(repeats),
        http_client=stripe.RequestsClient(timeout=int(patience) / 1000),
    )
    outcomes = SimpleQueue()
    reporter = Thread(target=report, args=[outcomes])
    reporter.start()
    with ThreadPoolExecutor(max_workers=64) as pool:
        for line in sys.stdin:
            outcomes.put(pool.submit(make, client, json.loads(line)))
    outcomes.put(None)
    reporter.join()


main(*sys.argv[1:])
