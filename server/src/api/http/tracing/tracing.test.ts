import { once } from 'node:events';
import { describe, expect, it } from 'vitest';
import { WebSocket } from 'ws';
import { startCollectorStandIn } from '../../testing/collector-stand-in.ts';
import { startTestServer } from '../../testing/test-server.ts';
import { tracingSettings } from './tracing-settings.ts';

const never = (message: string) => {
  throw new Error(message);
};
const settingsFor = (url: string, more: Record<string, string> = {}) =>
  tracingSettings({ OTEL_EXPORTER_OTLP_ENDPOINT: url, ...more }, never)!;

describe('tracing against a stand-in for a collector', () => {
  it('sends one span for each request, with templates and ids and never keys, bodies or arguments', async () => {
    await using collector = await startCollectorStandIn();
    const tracing = settingsFor(collector.url, {
      OTEL_EXPORTER_OTLP_HEADERS: 'x-tenant=a%20b',
      OTEL_RESOURCE_ATTRIBUTES: 'host.name=h',
    });
    const test = await startTestServer({ tracing });
    const { id } = await test.create({ env: { SECRET: 'in-the-body' } });
    await test.call('POST', `/v1/sandboxes/${id}/exec`, {
      body: { argv: ['echo', 'an-argument'] },
      headers: { 'x-request-id': 'req-1' },
    });
    await test.call('GET', `/v1/sandboxes/${test.alice}`);
    await test.call('GET', '/nowhere?cay_token=a-token');
    await test.call('GET', '/v1/version', { key: null });
    await test[Symbol.asyncDispose]();

    expect(collector.complaints).toEqual([]);
    const named = (name: string) => collector.spans.filter((span) => span.name === name);
    expect(named('POST /v1/sandboxes')[0]).toMatchObject({
      attributes: { 'cay.sandbox.id': id, 'http.response.status_code': '201', 'http.route': '/v1/sandboxes' },
      resource: { 'service.name': 'cay', 'host.name': 'h', 'service.version': expect.any(String) as string },
    });
    expect(named('POST /v1/sandboxes/{id}/exec')).toMatchObject([
      {
        attributes: {
          'http.request.method': 'POST',
          'http.response.status_code': '200',
          'cay.request.id': 'req-1',
          'cay.operation': 'exec',
          'cay.sandbox.id': id,
          'cay.project.id': expect.stringMatching(/^prj_/) as string,
        },
        status: {},
      },
    ]);
    expect(named('GET /v1/version')[0]!.attributes).toMatchObject({ 'http.response.status_code': '401' });
    expect(named('GET')).toHaveLength(1);
    const [span] = named('POST /v1/sandboxes/{id}/exec');
    expect(BigInt(span!.endTimeUnixNano)).toBeGreaterThan(BigInt(span!.startTimeUnixNano));
    expect(Math.abs(Number(BigInt(span!.startTimeUnixNano) / 1_000_000n) - Date.now())).toBeLessThan(60_000);
    expect(new Set(collector.spans.map(({ spanId }) => spanId)).size).toBe(collector.spans.length);
    expect(collector.headers[0]).toMatchObject({ 'x-tenant': 'a b' });
    for (const secret of [test.alice, test.admin, 'in-the-body', 'an-argument', 'a-token'])
      expect(collector.text).not.toContain(secret);
  });

  it('goes on in the caller’s trace, and leads into the application behind a preview', async () => {
    await using collector = await startCollectorStandIn();
    const test = await startTestServer({ tracing: settingsFor(collector.url) });
    const trace = 'a'.repeat(32);
    const traceparent = `00-${trace}-${'b'.repeat(16)}-01`;
    const { headers } = await test.call('GET', '/v1/version', {
      headers: { traceparent, tracestate: 'vendor=1' },
    });
    expect(headers.get('traceresponse')).toMatch(new RegExp(`^00-${trace}-[0-9a-f]{16}-01$`));

    const { id } = await test.create({ ports: [{ port: 80, visibility: 'public' }] });
    await test.call('POST', `/v1/sandboxes/${id}/commands`, { body: { argv: ['http-server', '80'] } });
    const seen = await test.call('GET', `/preview/${id}/80/`, { headers: { traceparent } });
    await test.call('GET', '/v1/version', { headers: { traceparent: traceparent.replace(/01$/, '00') } });
    await test.call('GET', '/v1/version', { headers: { traceparent: 'broken' } });
    await test[Symbol.asyncDispose]();

    const ours = collector.spans.filter(({ traceId }) => traceId === trace);
    expect(ours).toMatchObject([
      { name: 'GET /v1/version', parentSpanId: 'b'.repeat(16), traceState: 'vendor=1' },
      {
        name: 'GET',
        parentSpanId: 'b'.repeat(16),
        attributes: { 'cay.operation': 'preview', 'cay.sandbox.id': id },
      },
    ]);
    expect((seen.json as { headers: Record<string, string> }).headers['traceparent']).toBe(
      `00-${trace}-${ours[1]!.spanId}-01`,
    );
    expect(collector.spans.filter(({ name }) => name === 'GET /v1/version')).toHaveLength(2);
  });

  it('has a span for a WebSocket, until it closes', async () => {
    await using collector = await startCollectorStandIn();
    const test = await startTestServer({ tracing: settingsFor(collector.url) });
    const { id } = await test.create();
    const socket = new WebSocket(`${test.server.url.replace('http', 'ws')}/v1/sandboxes/${id}/exec`, {
      headers: { authorization: `Bearer ${test.alice}` },
    });
    socket.on('open', () => socket.send('{"exec":{"argv":["true"]}}'));
    await once(socket, 'close');
    await test[Symbol.asyncDispose]();
    expect(collector.complaints).toEqual([]);
    expect(collector.spans.filter(({ name }) => name === 'GET /v1/sandboxes/{id}/exec')).toMatchObject([
      {
        attributes: {
          'http.response.status_code': '101',
          'cay.operation': 'execSocket',
          'cay.sandbox.id': id,
        },
      },
    ]);
  });

  it('goes on serving when the collector refuses or is not there', async () => {
    const collector = await startCollectorStandIn();
    collector.status = 503;
    const test = await startTestServer({ tracing: settingsFor(collector.url) });
    await test.create();
    await collector[Symbol.asyncDispose]();
    await test.create();
    await test[Symbol.asyncDispose]();
    expect(collector.spans).toEqual([]);
  });
});

describe('tracingSettings()', () => {
  const told: string[] = [];
  const settings = (env: Record<string, string>) => tracingSettings(env, (message) => told.push(message));

  it('asks for nothing unless an endpoint is set', () => {
    const endpoint = { OTEL_EXPORTER_OTLP_ENDPOINT: 'http://c:4318' };
    for (const env of [
      {},
      { ...endpoint, OTEL_SDK_DISABLED: 'true' },
      { ...endpoint, OTEL_TRACES_EXPORTER: 'none' },
    ])
      expect(settings(env as Record<string, string>)).toBeUndefined();
    expect(told).toEqual([]);
  });

  it('reads the endpoint as the specification says', () => {
    expect(settings({ OTEL_EXPORTER_OTLP_ENDPOINT: 'http://c:4318' })?.url).toBe('http://c:4318/v1/traces');
    expect(settings({ OTEL_EXPORTER_OTLP_ENDPOINT: 'https://c/base/' })?.url).toBe(
      'https://c/base/v1/traces',
    );
    expect(settings({ OTEL_EXPORTER_OTLP_TRACES_ENDPOINT: 'http://c/as-it-is' })?.url).toBe(
      'http://c/as-it-is',
    );
    expect(settings({ OTEL_EXPORTER_OTLP_ENDPOINT: 'http://c', OTEL_SERVICE_NAME: 'n' })?.resource).toEqual({
      'service.name': 'n',
    });
  });

  it('reports what it does not support', () => {
    expect(
      settings({ OTEL_EXPORTER_OTLP_ENDPOINT: 'http://c:4317', OTEL_EXPORTER_OTLP_PROTOCOL: 'grpc' }),
    ).toBeUndefined();
    expect(settings({ OTEL_EXPORTER_OTLP_ENDPOINT: 'c:4317' })).toBeUndefined();
    expect(told).toEqual([expect.stringContaining('gRPC'), expect.stringContaining('not an HTTP address')]);
  });
});
