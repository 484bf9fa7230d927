import { describe, expect, it } from 'vitest';
import { startCollectorStandIn } from '../../server/src/api/testing/collector-stand-in.ts';
import { openCay } from '../support/cay.ts';

describe('a server with a collector in its environment', () => {
  it('sends it the spans of what the command line asks for', async () => {
    await using collector = await startCollectorStandIn();
    const cay = await openCay({
      CAY_BACKEND: 'memory',
      OTEL_EXPORTER_OTLP_ENDPOINT: collector.url,
      OTEL_SERVICE_NAME: 'cay-e2e',
    });
    try {
      expect(await cay.run('run', '--', 'echo', 'an-argument')).toMatchObject({
        code: 0,
        stdout: 'an-argument\n',
      });
    } finally {
      // Ending the server sends what still waits.
      await cay[Symbol.asyncDispose]();
    }
    expect(collector.complaints).toEqual([]);
    expect(collector.spans.map(({ name }) => name)).toEqual(
      expect.arrayContaining([
        'POST /v1/sandboxes',
        'GET /v1/sandboxes/{id}/exec',
        'DELETE /v1/sandboxes/{id}',
      ]),
    );
    expect(collector.spans[0]!.resource).toMatchObject({ 'service.name': 'cay-e2e' });
    expect(collector.text).not.toContain('an-argument');
  });
});
