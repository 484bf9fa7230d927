import { once } from 'node:events';
import { createServer } from 'node:net';
import type { NetworkPolicy } from '@cay/sdk/protocol';
import { describe, expect, it, vi } from 'vitest';
import { openProgram, textOf } from './testing/program.ts';
import { echoServer, listen, world } from './testing/servers.ts';

describe('raw connections', () => {
  it('carries bytes both ways to the pinned address, with half-close', async () => {
    const { port } = await echoServer();
    const { egress, sandbox, names, connect: dial } = world({ allow: [`echo.example.org:${port}`] });
    names.set('echo.example.org', ['127.0.0.1']);
    const program = dial({ name: 'Echo.Example.org.', port, process: 'nc' });
    await program.accepted;
    program.socket.end('hello\n');
    expect(await textOf(program.socket)).toBe('HELLO\nBYE');
    await vi.waitFor(() => expect(egress.stats(sandbox)!.connections).toBe(0));
    expect(egress.attempts(sandbox)[0]).toMatchObject({
      name: 'echo.example.org',
      address: '127.0.0.1',
      port,
      process: 'nc',
      protocol: 'tcp',
      verdict: 'allowed',
      rule: `echo.example.org:${port}`,
      bytesOut: 6,
      bytesIn: 9,
      open: false,
    });
    expect(egress.stats(sandbox)).toMatchObject({ bytesOut: 6, bytesIn: 9, attempts: 1, denied: 0 });
  });

  it('carries servers that speak first', async () => {
    const server = createServer((socket) => socket.end('220 ready\r\n'));
    const port = await listen(server);
    const { names, connect: dial } = world({ allow: [`mail.example.org:${port}`] });
    names.set('mail.example.org', ['127.0.0.1']);
    expect(await textOf(dial({ name: 'mail.example.org', port }).socket)).toBe('220 ready\r\n');
  });

  it('copies many megabytes unchanged, at the pace of the reader', async () => {
    const total = 32 * 1024 * 1024;
    const server = createServer((socket) => {
      socket.on('error', () => {});
      socket.end(Buffer.alloc(total, 'x'));
    });
    const port = await listen(server);
    const { names, connect: dial } = world({ allow: [`big.example.org:${port}`] });
    names.set('big.example.org', ['127.0.0.1']);
    let size = 0;
    for await (const chunk of dial({ name: 'big.example.org', port }).socket) {
      size += (chunk as Buffer).length;
      if (size % 7 === 0) await new Promise((resolve) => setTimeout(resolve, 1));
    }
    expect(size).toBe(total);
  });

  it('does not read from a target whose bytes the program does not take', async () => {
    let written = 0;
    const server = createServer((socket) => {
      socket.on('error', () => {});
      const write = () => {
        while (socket.write(Buffer.alloc(65_536))) written += 65_536;
        socket.once('drain', write);
      };
      write();
    });
    const port = await listen(server);
    const { names, connect: dial } = world({ allow: [`flood.example.org:${port}`] });
    names.set('flood.example.org', ['127.0.0.1']);
    const program = dial({ name: 'flood.example.org', port });
    await program.accepted;
    await new Promise((resolve) => setTimeout(resolve, 300));
    const before = written;
    await new Promise((resolve) => setTimeout(resolve, 300));
    expect(written).toBe(before);
    expect(written).toBeLessThan(32 * 1024 * 1024);
    program.socket.destroy();
  });

  it('refuses in milliseconds what no rule allows, with the rule to add', async () => {
    const { egress, sandbox, connect: dial } = world('packages');
    const began = performance.now();
    const error = await dial({ name: 'db.example.org', port: 5432 }).refused;
    expect(performance.now() - began).toBeLessThan(100);
    expect(error).toMatchObject({ code: 'permission_denied', details: { reason: 'no_rule' } });
    expect(error.hint).toBe(`To allow it: cay net allow ${sandbox} db.example.org:5432`);
    expect(egress.attempts(sandbox)[0]).toMatchObject({
      verdict: 'denied',
      reason: 'no_rule',
      suggestion: 'db.example.org:5432',
    });
  });

  it('what is refused is recorded so, also if the program leaves before it is told why', async () => {
    const { egress, sandbox, connect } = world('none');
    const program = connect({ name: 'example.org', port: 443 });
    await program.accepted;
    expect(egress.attempts(sandbox)[0]).toMatchObject({ verdict: 'denied', reason: 'no_rule', open: true });
    program.socket.destroy();
    await vi.waitFor(() => expect(egress.attempts(sandbox)[0]).toMatchObject({ open: false }));
    expect(egress.attempts(sandbox)[0]).toMatchObject({ verdict: 'denied', reason: 'no_rule' });
    expect(egress.stats(sandbox)).toMatchObject({ attempts: 1, denied: 1 });
  });

  it('a program that leaves before anybody has answered was not allowed', async () => {
    const { egress, sandbox, connect } = world('ask', { ask: () => new Promise(() => {}) });
    const program = connect({ name: 'asked.example.net', port: 8443 });
    await vi.waitFor(() => expect(egress.attempts(sandbox)).toHaveLength(1));
    program.socket.destroy();
    await vi.waitFor(() => expect(egress.attempts(sandbox)[0]).toMatchObject({ open: false }));
    expect(egress.attempts(sandbox)[0]).toMatchObject({ verdict: 'failed', reason: 'closed' });
  });

  it('refuses everything of a sandbox without a policy', async () => {
    const { egress, sandbox } = world('public');
    egress.policies.remove(sandbox);
    const program = openProgram(egress, sandbox, { name: 'example.org', port: 443 });
    expect(await program.refused).toMatchObject({
      code: 'permission_denied',
      details: { reason: 'no_policy' },
    });
    expect(await egress.lookup(sandbox, { name: 'example.org' })).toEqual({ kind: 'absent' });
  });

  it.each([
    [{ name: 'localhost', port: 80 }],
    [{ name: 'a'.repeat(300), port: 80 }],
    [{ name: 'example.org', port: 0 }],
    [{ name: 'example.org', port: 70_000 }],
    [{ name: 'example.org', port: Number.NaN }],
    [{ name: '127.0.0.1', port: 80 }],
    [{ name: 'example.org\0', port: 80 }],
    [{ address: '::1%lo', port: 80 }],
    [{ address: '0177.0.0.1', port: 80 }],
    [{ port: 80 }],
  ])('refuses %j, which is no target', async (target) => {
    expect(await world('public').connect(target).refused).toMatchObject({ code: 'invalid_argument' });
  });

  it('says that a target does not answer', async () => {
    const { port } = await echoServer('127.0.0.2');
    const { names, connect: dial } = world('public');
    names.set('gone.example.org', ['127.0.0.1']);
    expect(await dial({ name: 'gone.example.org', port }).refused).toMatchObject({ code: 'unavailable' });
    expect(await dial({ name: 'absent.example.org', port }).refused).toMatchObject({
      code: 'unavailable',
      details: { reason: 'resolve' },
    });
  });

  it('tries the next address of a name', async () => {
    const { port } = await echoServer('127.0.0.3');
    const { egress, sandbox, names, connect: dial } = world('public');
    names.set('many.example.org', ['127.0.0.1', '127.0.0.2', '127.0.0.3']);
    const program = dial({ name: 'many.example.org', port });
    program.socket.end('x');
    expect(await textOf(program.socket)).toBe('XBYE');
    expect(egress.attempts(sandbox)[0]!.address).toBe('127.0.0.3');
  });
});

describe('addresses', () => {
  it('refuses names that resolve to what is not public, and connects to none of it', async () => {
    const { port, sockets } = await echoServer('127.0.0.9');
    const { egress, sandbox, names, connect: dial } = world('public');
    for (const address of [
      '127.0.0.9',
      '10.0.0.1',
      '169.254.169.254',
      '::ffff:10.0.0.1',
      'fd00::1',
      '64:ff9b::a00:1',
    ]) {
      names.set('rebound.example.org', [address]);
      const error = await dial({ name: 'rebound.example.org', port }).refused;
      expect(error, address).toMatchObject({ code: 'permission_denied', details: { reason: 'address' } });
    }
    expect(sockets.size).toBe(0);
    expect(egress.attempts(sandbox)[0]).toMatchObject({ verdict: 'denied', reason: 'address' });
  });

  it('uses the public addresses of a name that has others too', async () => {
    const { port } = await echoServer();
    const { names, connect: dial } = world('public');
    names.set('mixed.example.org', ['10.0.0.1', '127.0.0.1']);
    const program = dial({ name: 'mixed.example.org', port });
    program.socket.end('x');
    expect(await textOf(program.socket)).toBe('XBYE');
  });

  it('resolves once for a connection', async () => {
    const { port } = await echoServer();
    const { names, resolved, connect: dial } = world('public');
    names.set('once.example.org', ['127.0.0.1']);
    const program = dial({ name: 'once.example.org', port });
    await program.accepted;
    names.set('once.example.org', ['127.0.0.9']);
    program.socket.end('x');
    expect(await textOf(program.socket)).toBe('XBYE');
    expect(resolved).toEqual(['once.example.org']);
  });

  it('a rule of addresses lets names and programs reach them, if every layer has it', async () => {
    const { port } = await echoServer('127.0.0.9');
    const own: NetworkPolicy = { base: 'public', allow: [`127.0.0.9:${port}`] };
    const reach = async (policies: NetworkPolicy[], target: object) => {
      const { names, connect: dial } = world(policies);
      names.set('inner.example.org', ['127.0.0.9']);
      const program = dial({ port, ...target });
      return Promise.race([program.accepted.then(() => 'reached'), program.refused.then(({ code }) => code)]);
    };
    expect(await reach([own], { name: 'inner.example.org' })).toBe('reached');
    expect(await reach([own], { address: '127.0.0.9' })).toBe('reached');
    expect(await reach([own, 'public'], { name: 'inner.example.org' })).toBe('permission_denied');
    expect(await reach([own, 'public'], { address: '127.0.0.9' })).toBe('permission_denied');
    expect(await reach(['public', own], { address: '127.0.0.9' })).toBe('permission_denied');
  });

  it('a program that chooses an address needs a rule of addresses', async () => {
    const { port } = await echoServer();
    const { connect: dial } = world({ allow: [`echo.example.org:${port}`] });
    expect(await dial({ address: '127.0.0.1', port }).refused).toMatchObject({ code: 'permission_denied' });
    const open = world('public').connect({ address: '127.0.0.1', port });
    await open.accepted;
    open.socket.destroy();
  });
});

describe('live changes', () => {
  it('cuts what is not allowed any more, and leaves the rest', async () => {
    const { port } = await echoServer();
    const { egress, sandbox, names, connect: dial } = world('public');
    names.set('a.example.org', ['127.0.0.1']);
    names.set('b.example.org', ['127.0.0.1']);
    const a = dial({ name: 'a.example.org', port });
    const b = dial({ name: 'b.example.org', port });
    for (const program of [a, b]) {
      await program.accepted;
      program.socket.write('x');
      await once(program.socket, 'data');
    }
    egress.policies.set(sandbox, [{ allow: [`a.example.org:${port}`] }]);
    expect(await b.refused).toMatchObject({
      code: 'permission_denied',
      details: { reason: 'policy_changed' },
    });
    a.socket.write('y');
    expect(String((await once(a.socket, 'data'))[0])).toBe('Y');
    egress.policies.remove(sandbox);
    expect(await a.refused).toMatchObject({ code: 'permission_denied' });
  });

  it('a policy that cannot be read changes nothing', async () => {
    const { egress, sandbox } = world('public');
    expect(() => egress.policies.set(sandbox, [{ allow: ['no such'] }])).toThrow('spaces');
    expect(egress.policies.get(sandbox)).toEqual(['public']);
  });
});

describe('approvals', () => {
  it('an attempt waits, is offered with the narrowest rule, and goes on when it is allowed', async () => {
    const { port } = await echoServer();
    const asked: string[] = [];
    const { names, connect: dial } = world(
      { otherwise: 'ask' },
      {
        ask: async ({ rule, name }) => {
          asked.push(`${name} ${rule}`);
          return 'allow';
        },
      },
    );
    names.set('new.example.org', ['127.0.0.1']);
    const programs = [dial({ name: 'new.example.org', port }), dial({ name: 'new.example.org', port })];
    for (const program of programs) {
      program.socket.end('x');
      expect(await textOf(program.socket)).toBe('XBYE');
    }
    expect(asked).toEqual([`new.example.org new.example.org:${port}`]);
  });

  it.each([
    ['is denied', async () => 'deny' as const],
    ['fails', async () => Promise.reject(new Error('gone'))],
    ['is never answered', () => new Promise<'allow'>(() => {})],
  ])('it is refused if the question %s', async (_how, ask) => {
    const { egress, sandbox, connect: dial } = world({ otherwise: 'ask' }, { ask, timeouts: { askMs: 50 } });
    expect(await dial({ name: 'new.example.org', port: 9 }).refused).toMatchObject({
      code: 'permission_denied',
      details: { reason: 'not_approved' },
    });
    expect(egress.attempts(sandbox)[0]).toMatchObject({ verdict: 'denied', reason: 'not_approved' });
  });

  it('a grant holds until it expires, and what it allowed is cut then', async () => {
    const { port } = await echoServer();
    let now = 1_000_000;
    const clock = { now: () => now, steady: () => performance.now(), ageing: () => now };
    const { egress, sandbox, names, connect: dial } = world({ otherwise: 'ask' }, { clock });
    names.set('new.example.org', ['127.0.0.1']);
    egress.grant(sandbox, `new.example.org:${port}`, now + 60_000);
    const program = dial({ name: 'new.example.org', port });
    await program.accepted;
    program.socket.write('x');
    await once(program.socket, 'data');
    now += 61_000;
    expect(await program.refused).toMatchObject({ details: { reason: 'policy_changed' } });
    expect(egress.grants(sandbox)).toEqual([]);
  });
});

describe('limits', () => {
  it('bounds connections at a time', async () => {
    const { port } = await echoServer();
    const { names, connect: dial } = world({ base: 'public', limits: { connections: 2 } });
    names.set('a.example.org', ['127.0.0.1']);
    const [one, two] = [dial({ name: 'a.example.org', port }), dial({ name: 'a.example.org', port })];
    await Promise.all([one.accepted, two.accepted]);
    expect(await dial({ name: 'a.example.org', port }).refused).toMatchObject({ code: 'resource_exhausted' });
    one.socket.destroy();
    await new Promise((resolve) => setTimeout(resolve, 20));
    const three = dial({ name: 'a.example.org', port });
    await three.accepted;
    two.socket.destroy();
    three.socket.destroy();
  });

  it('bounds bytes of the sandbox and of a rule', async () => {
    const { port } = await echoServer();
    const { names, connect: dial } = world({
      allow: [{ to: `a.example.org:${port}`, limits: { bytesOut: 10 } }, `b.example.org:${port}`],
      limits: { bytesOut: 100 },
    });
    names.set('a.example.org', ['127.0.0.1']);
    names.set('b.example.org', ['127.0.0.1']);
    const a = dial({ name: 'a.example.org', port });
    a.socket.write('x'.repeat(11));
    expect(await a.refused).toMatchObject({ code: 'resource_exhausted' });
    expect(await dial({ name: 'a.example.org', port }).refused).toMatchObject({ code: 'resource_exhausted' });
    const b = dial({ name: 'b.example.org', port });
    b.socket.write('x'.repeat(50));
    await once(b.socket, 'data');
    b.socket.write('x'.repeat(50));
    expect(await b.refused).toMatchObject({ code: 'resource_exhausted' });
  });

  it('bounds the rate', async () => {
    const { port } = await echoServer();
    const { names, connect: dial } = world({ base: 'public', limits: { bytesPerSecond: 100_000 } });
    names.set('slow.example.org', ['127.0.0.1']);
    const program = dial({ name: 'slow.example.org', port });
    const began = performance.now();
    program.socket.end('x'.repeat(50_000));
    expect((await textOf(program.socket)).length).toBe(50_003);
    expect(performance.now() - began).toBeGreaterThan(300);
  });

  it('bounds new names that only a glob allows', async () => {
    const { port } = await echoServer();
    const {
      names,
      resolved,
      connect: dial,
    } = world({
      allow: [`*.example.org:${port}`, `known.example.org:${port}`],
      limits: { namesPerMinute: 3 },
    });
    const reach = async (name: string) => {
      names.set(name, ['127.0.0.1']);
      const program = dial({ name, port });
      const result = await Promise.race([program.accepted, program.refused.then(({ code }) => code)]);
      program.socket.destroy();
      return result;
    };
    for (const name of ['a', 'b', 'c', 'a']) expect(await reach(`${name}.example.org`)).toBeUndefined();
    expect(await reach('secret-data.example.org')).toBe('resource_exhausted');
    expect(await reach('known.example.org')).toBeUndefined();
    expect(resolved).not.toContain('secret-data.example.org');
  });

  it('ends idle connections', async () => {
    const { port } = await echoServer();
    const { names, connect: dial } = world('public', { timeouts: { idleMs: 100 } });
    names.set('idle.example.org', ['127.0.0.1']);
    const program = dial({ name: 'idle.example.org', port });
    program.socket.write('x');
    expect(await program.refused).toMatchObject({ code: 'deadline_exceeded' });
  });
});

describe('lookups', () => {
  it('answer from the policy alone, with the ports to listen on', async () => {
    const { egress, sandbox, resolved } = world({ allow: ['db.example.org:5432', '*.wide.org:*'] });
    expect(await egress.lookup(sandbox, { name: 'DB.example.org.' })).toEqual({
      kind: 'address',
      ports: [80, 443, 5432],
    });
    expect(await egress.lookup(sandbox, { name: 'a.wide.org' })).toEqual({
      kind: 'address',
      ports: [80, 443],
      anyPort: true,
    });
    expect(await egress.lookup(sandbox, { name: 'denied.org' })).toEqual({
      kind: 'address',
      ports: [80, 443],
    });
    for (const name of [
      'localhost',
      'intranet',
      '',
      'x'.repeat(255),
      '127.0.0.1',
      'a..b',
      '4.3.2.1.in-addr.arpa',
    ])
      expect(await egress.lookup(sandbox, { name }), name).toEqual({ kind: 'absent' });
    expect(resolved).toEqual([]);
  });

  it('leave out ports that a layer above does not allow', async () => {
    const { egress, sandbox } = world([{ allow: ['db.example.org:5432,6379'] }, { allow: ['*:443,6379'] }]);
    expect(await egress.lookup(sandbox, { name: 'db.example.org' })).toEqual({
      kind: 'address',
      ports: [80, 443, 6379],
    });
  });
});

describe('a program that goes away', () => {
  it('leaves nothing behind', async () => {
    const { port, sockets } = await echoServer();
    const { egress, sandbox, names, connect: dial } = world('public');
    names.set('a.example.org', ['127.0.0.1']);
    for (let round = 0; round < 20; round++) {
      const program = dial({ name: 'a.example.org', port });
      if (round % 3 > 0) await program.accepted;
      if (round % 3 > 1) program.socket.write('GET / HT');
      program.socket.destroy(round % 2 ? new Error('gone') : undefined);
    }
    await vi.waitFor(() => expect(egress.stats(sandbox)!.connections).toBe(0));
    await vi.waitFor(() => expect([...sockets].every((socket) => socket.destroyed)).toBe(true));
  });
});

describe('named networks', () => {
  it('are changed by one project without a look at what others carry', async () => {
    const { port } = await echoServer();
    const looked = { count: 0 };
    const { egress, connect: dial } = world(
      { allow: [`127.0.0.1:${port}`] },
      {
        classify(address) {
          looked.count++;
          return { address, kind: 'public', own: false };
        },
      },
    );
    const program = dial({ address: '127.0.0.1', port });
    await program.accepted;
    program.socket.write('x');
    await once(program.socket, 'readable');
    const noisy = 'sbx_noisy' as Parameters<typeof egress.networks.set>[0];
    egress.policies.set(noisy, ['none'], { project: 'noisy' });
    looked.count = 0;
    for (let round = 0; round < 100; round++)
      egress.networks.set(noisy, { project: 'noisy', hostname: 'a', networks: [`n${round}`] });
    egress.policies.remove(noisy);
    expect(looked.count).toBe(0);
    program.socket.destroy();
  });
});
