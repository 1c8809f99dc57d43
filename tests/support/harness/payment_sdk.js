// Pays with the official SDK of a payment provider, as payment_sdk.py does: the same arguments, calls and outcomes.

const readline = require("node:readline");
const Stripe = require("stripe");

const CALLS = {
    pay: (client, call, options) => client.paymentIntents.create(call.params, options),
    send: (client, call, options) => client.v2.moneyManagement.outboundPayments.create(call.params, options),
    delete: (client, call, options) => client.v2.core.eventDestinations.del(call.id, {}, options),
};

async function make(client, call) {
    const key = call.idempotency_key;
    const options = key === undefined ? {} : { idempotencyKey: key };
    try {
        const reply = await CALLS[call.call](client, call, options);
        const { statusCode, headers } = reply.lastResponse;
        return { http_status: statusCode, headers, body: reply };
    } catch (error) {
        if (!(error instanceof Stripe.errors.StripeError)) {
            throw error;
        }
        // The SDK keeps the members of the error, not the body.
        const { rawType, code, message } = error;
        return {
            http_status: error.statusCode ?? null,
            headers: error.headers ?? {},
            body: { error: { type: rawType, code, message } },
            error: error.type.replace(/^Stripe/, ""),
            message,
        };
    }
}

function main(base, repeats, patience) {
    const { hostname, port } = new URL(base);
    const client = new Stripe("sk_test_of_nobody", {
        protocol: "http",
        host: hostname,
        port,
        maxNetworkRetries: Number(repeats),
        timeout: Number(patience),
        telemetry: false,
    });
    let reported = Promise.resolve();
    readline.createInterface({ input: process.stdin }).on("line", (line) => {
        const outcome = make(client, JSON.parse(line));
        reported = reported.then(async () => console.log(JSON.stringify(await outcome)));
    });
}

main(...process.argv.slice(1));
