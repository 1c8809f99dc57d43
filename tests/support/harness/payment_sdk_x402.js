// Buys with the reference client of x402, which signs a payment when a server demands one.
//
// Arguments: the base of the server's URLs, how often a purchase is repeated, milliseconds to wait for a reply. Each line
// of the input is a purchase, as JSON: `method`, `path`, `body` (or null), and `id`, its payment identifier. The purchases
// run at the same time, each with an account of its own. The client repeats none, so that this application does: with the
// same id, after a failed connection, a reply that is late, a payment that was declined (402), and a server that is busy
// (503, or 409 with `Retry-After`). Each line of the output is what came of one, in the order of the input: `status`,
// `headers` and `body` of the last reply, `receipt` (its settlement, or null), `payer` (the account) and `tries`.

const readline = require("node:readline");
const { x402Client, x402HTTPClient, wrapFetchWithPayment } = require("@x402/fetch");
const { ExactEvmScheme } = require("@x402/evm/exact/client");
const { appendPaymentIdentifierToExtensions } = require("@x402/extensions/payment-identifier");
const { generatePrivateKey, privateKeyToAccount } = require("viem/accounts");

function isWorthRepeating(reply) {
    const isBusy = reply.status === 503 || (reply.status === 409 && reply.headers.has("retry-after"));
    return isBusy || reply.status === 402;
}

async function buy(base, repeats, patience, { method, path, body, id }) {
    const account = privateKeyToAccount(generatePrivateKey());
    const client = new x402Client();
    client.register("eip155:*", new ExactEvmScheme(account));
    client.onBeforePaymentCreation(async ({ paymentRequired }) => {
        appendPaymentIdentifierToExtensions(paymentRequired.extensions ?? {}, id);
    });
    const pay = wrapFetchWithPayment(fetch, client);
    for (let tries = 1; ; tries += 1) {
        let reply, text;
        try {
            const signal = AbortSignal.timeout(patience);
            const headers = body === null ? {} : { "content-type": "application/json" };
            reply = await pay(base + path, { method, headers, body: body && JSON.stringify(body), signal });
            text = await reply.text();
        } catch (error) {
            const isOfNetwork = error.name === "TimeoutError" || error instanceof TypeError;
            if (isOfNetwork && tries <= repeats) {
                continue;
            }
            throw error;
        }
        if (isWorthRepeating(reply) && tries <= repeats) {
            continue;
        }
        const settled = reply.headers.has("payment-response");
        const header = (name) => reply.headers.get(name);
        return {
            status: reply.status,
            headers: Object.fromEntries(reply.headers),
            body: text,
            receipt: settled ? new x402HTTPClient(client).getPaymentSettleResponse(header) : null,
            payer: account.address,
            tries,
        };
    }
}

function main(base, repeats, patience) {
    let reported = Promise.resolve();
    readline.createInterface({ input: process.stdin }).on("line", (line) => {
        const outcome = buy(base, Number(repeats), Number(patience), JSON.parse(line));
        reported = reported.then(async () => console.log(JSON.stringify(await outcome)));
    });
}

main(...process.argv.slice(1));
