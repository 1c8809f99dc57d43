"""Pays with the official SDK of a payment provider, which repeats a request on its own.

Arguments: the base of the API's URLs, how often a request is repeated, seconds to wait for a reply.
Each line of the input is a payment, as JSON: the parameters of a PaymentIntent, and `idempotency_key`
unless the SDK is to make one of its own. Each line of the output is what came of it, in that order:
`http_status`, `headers` (names in lower case) and `body` of the last reply, or null where there was
none; for a failure also `error`, which is the SDK's name for it, and `message`.
"""

import json
import os
import sys

# Whatever the environment says, everything stays on loopback.
for name in [name for name in os.environ if name.lower().endswith("_proxy")]:
    del os.environ[name]

import stripe

stripe.enable_telemetry = False


def pay(client, payment):
    key = payment.pop("idempotency_key", None)
    options = {} if key is None else {"idempotency_key": key}
    try:
        reply = client.v1.payment_intents.create(payment, options).last_response
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


def main(base, retries, timeout):
    client = stripe.StripeClient(
        "sk_test_of_nobody",
        base_addresses={name: base for name in ["api", "connect", "files", "meter_events"]},
        max_network_retries=int(retries),
        http_client=stripe.RequestsClient(timeout=float(timeout)),
    )
    for line in sys.stdin:
        print(json.dumps(pay(client, json.loads(line))), flush=True)


main(*sys.argv[1:])
