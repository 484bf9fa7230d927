import { createServer } from 'node:http';
import { connect, type AddressInfo } from 'node:net';
import { getSystemErrorMap } from 'node:util';
import { describe, expect, it } from 'vitest';
import { CayError } from './protocol/error.ts';
import { errnoOf, errnoText, isUnreached, reachHint, systemReason } from './system-error.ts';

const failed = (url: string): Promise<unknown> => fetch(url).then(undefined, (error: unknown) => error);

describe('system errors', () => {
  it('says that nothing listens, as fetch and as a socket report it', async () => {
    const server = createServer();
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    const { port } = server.address() as AddressInfo;
    await new Promise((resolve) => server.close(resolve));
    const byFetch = await failed(`http://127.0.0.1:${port}/`);
    expect(systemReason(byFetch)).toBe('nothing listens there');
    const bySocket = await new Promise((resolve) => connect(port, '127.0.0.1').on('error', resolve));
    expect(systemReason(bySocket)).toBe('nothing listens there');
    expect(reachHint(bySocket, 'the URL')).toContain('check the URL');
    expect(isUnreached(byFetch)).toBe(true);
    expect(errnoText('INVALID_PURPOSE')).toBe('its certificate is not valid');
    expect(isUnreached(Object.assign(new Error('x'), { code: 'CERT_HAS_EXPIRED' }))).toBe(false);
  });

  it('says that a name with several addresses leads nowhere', async () => {
    const refused = Object.assign(new Error('connect ECONNREFUSED ::1:1'), { code: 'ECONNREFUSED' });
    expect(systemReason(new AggregateError([refused, refused], ''))).toBe('nothing listens there');
  });

  it('says that a name is unknown', async () => {
    const error = Object.assign(new Error('getaddrinfo ENOTFOUND nope.invalid'), { code: 'ENOTFOUND' });
    expect(systemReason(new TypeError('fetch failed', { cause: error }))).toBe('the name is unknown');
    expect(reachHint(error, '--url')).toContain('check --url');
  });

  it('says that a server does not speak TLS, or not HTTP', async () => {
    const server = createServer((_request, response) => response.end('plain'));
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    const { port } = server.address() as AddressInfo;
    const error = await failed(`https://127.0.0.1:${port}/`);
    server.close();
    expect(systemReason(error)).toMatch(/TLS/);
    expect(systemReason(Object.assign(new Error('Parse Error'), { code: 'HPE_INVALID_CONSTANT' }))).toBe(
      'it does not speak HTTP',
    );
  });

  it('has words for every failure of a name, a network or a host', () => {
    const all = [...getSystemErrorMap().values()].map(([name]) => name);
    const reach = all.filter((name) => /^E(?:AI_|CONN|HOST|NET|TIMED)/.test(name));
    expect(reach.length).toBeGreaterThan(10);
    expect(reach.filter((name) => errnoText(name).includes(name))).toEqual([]);
  });

  it('keeps a message of ours, of a cause, and of wrong use', () => {
    expect(systemReason(new CayError('unavailable', 'Nothing answers'))).toBe('Nothing answers');
    expect(systemReason(new TypeError('fetch failed', { cause: new Error('inner') }))).toBe('inner');
    expect(systemReason('text')).toBe('text');
    let wrong: unknown;
    try {
      new URL('no url');
    } catch (error) {
      wrong = error;
    }
    expect(errnoOf(wrong)).toBe('ERR_INVALID_URL');
    expect(systemReason(wrong)).toBe('Invalid URL');
    expect(systemReason(new Error('x'.repeat(10_000)))).toHaveLength(1000);
  });
});
