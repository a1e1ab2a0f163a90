// A worker in TypeScript, on types that are generated from /openapi.json: it fails to compile when the description is wrong, and to
// run when the server does not keep to it.
import createClient from "openapi-fetch";
import type { paths } from "./api";

declare const process: { argv: string[] };

// Of the forms that an answer can have this client asks for JSON alone.
const client = createClient<paths, "application/json" | "application/problem+json">({ baseUrl: process.argv[2] });
const topic = "a/b";

function check(holds: boolean, what: string, ...seen: unknown[]) {
  if (!holds) throw new Error(what + ": " + JSON.stringify(seen));
}

const pushed = await client.PUT("/v1/topics/{topic}/messages/{id}", {
  params: { path: { topic, id: "x y?" }, query: { in: "1h" } },
  body: "hello",
  bodySerializer: (text) => text as string,
  headers: { "Content-Type": "text/plain" },
});
check(pushed.response.status === 201 && pushed.data?.result === "stored", "push", pushed.data, pushed.error);

const moved = await client.POST("/v1/topics/{topic}/messages/{id}/reschedule", { params: { path: { topic, id: "x y?" }, query: { in: "0s" } } });
check(moved.data?.outcome === "rescheduled", "reschedule", moved.error);

const many = await client.POST("/v1/push", { body: { messages: [{ topic, id: "m", body: "two" }, { topic, body: "three", in: "5" }] } });
check(many.data?.results[0].result === "stored" && many.data?.results[1].error?.code === "invalid", "push of many", many.data, many.error);

const done: string[] = [];
while (done.length < 2) {
  const claimed = await client.POST("/v1/claim", { body: { topics: [topic], max: 5, wait: "10s" } });
  for (const message of claimed.data?.messages ?? []) {
    const acked = await client.POST("/v1/settle", { body: { settlements: [{ topic: message.topic, id: message.id, token: message.token, verb: "ack" }] } });
    check(acked.data?.results[0].error === undefined, "ack", acked.data, acked.error);
    done.push(`${message.id} ${message.body} ${message.attempt}`);
  }
}
check(done.sort().join() === "m two 1,x y? hello 1", "messages", done);

const gone = await client.DELETE("/v1/topics/{topic}/messages/{id}", { params: { path: { topic, id: "m" } } });
check(gone.response.status === 404 && gone.error?.code === "not_found" && gone.error.definite, "cancel of what is done", gone.error);
