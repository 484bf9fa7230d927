import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { otlpExporter, type OtlpSpan } from './otlp-exporter.ts';

const span = (index: number): OtlpSpan => ({
  traceId: 'a'.repeat(32),
  spanId: index.toString(16).padStart(16, '0'),
  name: `span ${index}`,
  startMs: 1_700_000_000_000.123,
  endMs: 1_700_000_000_001,
  attributes: { text: 'a', count: 1, yes: true },
});

let server: Server;
let url: string;
let batches: number[];
let answer: () => number;
let hold: Promise<void>;
let last: string;

beforeEach(async () => {
  [batches, answer, hold, last] = [[], () => 200, Promise.resolve(), ''];
  // Speaks HTTP as a collector does.
  server = createServer((request, response) => {
    let text = '';
    request.on('data', (data: Buffer) => (text += data.toString()));
    request.on('end', () => {
      last = text;
      const body = JSON.parse(text) as { resourceSpans: [{ scopeSpans: [{ spans: unknown[] }] }] };
      batches.push(body.resourceSpans[0].scopeSpans[0].spans.length);
      void hold.then(() => response.writeHead(answer()).end('{}'));
    });
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  url = `http://127.0.0.1:${(server.address() as AddressInfo).port}/v1/traces`;
});
afterEach(() => {
  server.closeAllConnections();
  return new Promise((resolve) => server.close(resolve));
});

const options = { resource: { 'service.name': 's' }, scope: { name: 's', version: '1' } };

describe('otlpExporter()', () => {
  it('sends what waits when it is closed, in batches', async () => {
    const exporter = otlpExporter({ ...options, url });
    for (let index = 0; index < 1000; index++) exporter.add(span(index));
    await exporter.close();
    expect(batches.reduce((sum, count) => sum + count, 0)).toBe(1000);
    expect(Math.max(...batches)).toBeLessThanOrEqual(512);
    expect(last).toContain('"startTimeUnixNano":"1700000000000123000"');
    expect(last).toContain('{"key":"count","value":{"intValue":"1"}}');
  });

  it('sends by itself after a while', async () => {
    const exporter = otlpExporter({ ...options, url, delayMs: 5 });
    exporter.add(span(1));
    await expect.poll(() => batches).toEqual([1]);
    exporter.add(span(2));
    await expect.poll(() => batches).toEqual([1, 1]);
    await exporter.close();
  });

  it('keeps a bounded number while the collector is slow, and tells once', async () => {
    let release!: () => void;
    hold = new Promise((resolve) => (release = resolve));
    const told: { spans: number; reason: string }[] = [];
    const exporter = otlpExporter({
      ...options,
      url,
      queueLimit: 600,
      onDrop: (dropped) => told.push(dropped),
    });
    for (let index = 0; index < 5000; index++) exporter.add(span(index));
    expect(told).toEqual([{ spans: 1, reason: 'too many spans wait for the collector' }]);
    release();
    await exporter.close();
    expect(batches.reduce((sum, count) => sum + count, 0)).toBeLessThanOrEqual(600 + 512);
  });

  it.each([
    ['refuses', () => 503, 'the collector answered 503'],
    ['sends one elsewhere', () => 302, 'the collector answered 302'],
  ])('drops what a collector %s', async (_what, status, reason) => {
    answer = status;
    const told: { spans: number; reason: string }[] = [];
    const exporter = otlpExporter({ ...options, url, onDrop: (dropped) => told.push(dropped) });
    exporter.add(span(1));
    await exporter.close();
    expect(told).toEqual([{ spans: 1, reason }]);
  });

  it('drops spans that no collector takes', async () => {
    const told: string[] = [];
    const exporter = otlpExporter({
      ...options,
      url: 'http://127.0.0.1:1/',
      onDrop: ({ reason }) => told.push(reason),
    });
    exporter.add(span(1));
    await exporter.close();
    expect(told).toEqual([expect.stringMatching(/did not answer/)]);
  });
});
