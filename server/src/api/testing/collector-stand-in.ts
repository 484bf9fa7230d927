/**
 * A stand-in for an OpenTelemetry collector: a real HTTP server that takes OTLP/HTTP in its JSON
 * form at `/v1/traces`, is as strict about its shape as the specification is, and keeps the spans.
 */
import { createServer, type IncomingHttpHeaders } from 'node:http';
import type { AddressInfo } from 'node:net';
import { z } from 'zod';

const Value = z.union([
  z.strictObject({ stringValue: z.string() }),
  z.strictObject({ boolValue: z.boolean() }),
  z.strictObject({ intValue: z.string().regex(/^-?\d+$/) }),
]);
const Attribute = z.strictObject({ key: z.string().min(1), value: Value });
const Nanoseconds = z.string().regex(/^\d{16,20}$/);
const Span = z.strictObject({
  traceId: z.string().regex(/^[0-9a-f]{32}$/),
  spanId: z.string().regex(/^[0-9a-f]{16}$/),
  parentSpanId: z
    .string()
    .regex(/^[0-9a-f]{16}$/)
    .optional(),
  traceState: z.string().optional(),
  name: z.string().min(1),
  kind: z.literal(2),
  startTimeUnixNano: Nanoseconds,
  endTimeUnixNano: Nanoseconds,
  attributes: z.array(Attribute),
  status: z.strictObject({ code: z.literal(2).optional() }),
});
const Export = z.strictObject({
  resourceSpans: z.array(
    z.strictObject({
      resource: z.strictObject({ attributes: z.array(Attribute) }),
      scopeSpans: z.array(
        z.strictObject({
          scope: z.strictObject({ name: z.string(), version: z.string() }),
          spans: z.array(Span),
        }),
      ),
    }),
  ),
});

export interface ReceivedSpan extends Omit<z.infer<typeof Span>, 'attributes'> {
  attributes: Record<string, string | boolean>;
  resource: Record<string, string | boolean>;
}

export interface CollectorStandIn extends AsyncDisposable {
  /** What `OTEL_EXPORTER_OTLP_ENDPOINT` would be. */
  url: string;
  spans: ReceivedSpan[];
  /** Everything that was sent, as it was. */
  text: string;
  headers: IncomingHttpHeaders[];
  /** What it answers from now on; 200 at first. */
  status: number;
  /** What was wrong with what it was sent. */
  complaints: string[];
}

export async function startCollectorStandIn(): Promise<CollectorStandIn> {
  const server = createServer((request, response) => {
    let text = '';
    request.on('data', (data: Buffer) => (text += data.toString()));
    request.on('end', () => {
      stand.headers.push(request.headers);
      stand.text += text;
      const place = `${request.method} ${request.url} ${request.headers['content-type']}`;
      if (place !== 'POST /v1/traces application/json') stand.complaints.push(place);
      const parsed = Export.safeParse(JSON.parse(text));
      if (!parsed.success) stand.complaints.push(z.prettifyError(parsed.error));
      else if (stand.status === 200) take(parsed.data);
      response.writeHead(stand.status, { 'content-type': 'application/json' }).end('{"partialSuccess":{}}');
    });
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));

  function take({ resourceSpans }: z.infer<typeof Export>): void {
    for (const { resource, scopeSpans } of resourceSpans) {
      for (const span of scopeSpans.flatMap(({ spans }) => spans))
        stand.spans.push({
          ...span,
          attributes: plain(span.attributes),
          resource: plain(resource.attributes),
        });
    }
  }

  const stand: CollectorStandIn = {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    spans: [],
    text: '',
    headers: [],
    status: 200,
    complaints: [],
    async [Symbol.asyncDispose]() {
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
    },
  };
  return stand;
}

function plain(attributes: z.infer<typeof Attribute>[]): Record<string, string | boolean> {
  return Object.fromEntries(
    attributes.map(({ key, value }) => [key, Object.values(value)[0] as string | boolean]),
  );
}
