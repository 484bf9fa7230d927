import { once } from 'node:events';
import { duplexPair } from 'node:stream';
import { connect } from 'node:tls';
import fc from 'fast-check';
import { beforeAll, describe, expect, it } from 'vitest';
import { MAX_HELLO, parseClientHello } from './client-hello.ts';
import { judgeFirstBytes, readFirstBytes } from './first-bytes.ts';

/** The first bytes that OpenSSL sends. */
async function realHello(options: object = {}): Promise<Buffer> {
  const [inside, outside] = duplexPair();
  const socket = connect({
    socket: inside,
    servername: 'Example.org',
    ALPNProtocols: ['h2', 'http/1.1'],
    ...options,
  });
  socket.on('error', () => {});
  const [chunk] = (await once(outside, 'data')) as [Buffer];
  socket.destroy();
  return chunk;
}

/** The same message in records of so many bytes. */
function inRecords(hello: Buffer, size: number): Buffer {
  const message = hello.subarray(5);
  const records: Buffer[] = [];
  for (let at = 0; at < message.length; at += size) {
    const part = message.subarray(at, at + size);
    records.push(Buffer.from([22, 3, 1, part.length >> 8, part.length & 255]), part);
  }
  return Buffer.concat(records);
}

/** A hello with these extensions. */
function helloWith(extensions: [number, Buffer][]): Buffer {
  const block = (length: number, body: Buffer) => {
    const head = Buffer.alloc(length);
    head.writeUIntBE(body.length, 0, length);
    return Buffer.concat([head, body]);
  };
  const body = Buffer.concat([
    Buffer.from([3, 3]),
    Buffer.alloc(32, 7),
    block(1, Buffer.alloc(0)),
    block(2, Buffer.from([0x13, 1])),
    block(1, Buffer.from([0])),
    block(
      2,
      Buffer.concat(
        extensions.map(([type, content]) =>
          Buffer.concat([Buffer.from([type >> 8, type & 255]), block(2, content)]),
        ),
      ),
    ),
  ]);
  const message = Buffer.concat([Buffer.from([1]), block(3, body)]);
  return Buffer.concat([Buffer.from([22, 3, 1]), block(2, message)]);
}

function serverName(...names: string[]): [number, Buffer] {
  const list = Buffer.concat(
    names.map((name) =>
      Buffer.concat([Buffer.from([0, name.length >> 8, name.length & 255]), Buffer.from(name, 'latin1')]),
    ),
  );
  return [0, Buffer.concat([Buffer.from([list.length >> 8, list.length & 255]), list])];
}

describe('the ClientHello', () => {
  let hello: Buffer;
  beforeAll(async () => {
    hello = await realHello();
  });

  it('is read as OpenSSL sends it', () => {
    expect(parseClientHello(hello)).toEqual({
      kind: 'hello',
      hello: { serverName: 'example.org', protocols: ['h2', 'http/1.1'], encrypted: false },
    });
  });

  it('is read without a name', async () => {
    const result = parseClientHello(await realHello({ servername: '' }));
    expect(result).toMatchObject({ kind: 'hello', hello: { serverName: undefined } });
  });

  it('is read in whatever records and pieces it comes', () => {
    fc.assert(
      fc.property(fc.integer({ min: 16, max: 600 }), fc.nat(), (size, cut) => {
        const bytes = inRecords(hello, size);
        expect(parseClientHello(bytes)).toMatchObject({
          kind: 'hello',
          hello: { serverName: 'example.org' },
        });
        expect(parseClientHello(bytes.subarray(0, cut % bytes.length))).toEqual({ kind: 'more' });
      }),
    );
  });

  it('never throws, reads beyond its end or takes long, whatever is sent', () => {
    fc.assert(
      fc.property(fc.uint8Array({ maxLength: 2000 }), (bytes) => {
        expect(['hello', 'more', 'bad']).toContain(parseClientHello(Buffer.from(bytes)).kind);
      }),
      { numRuns: 800 },
    );
    fc.assert(
      fc.property(
        fc.array(fc.tuple(fc.nat(), fc.integer({ min: 0, max: 255 })), { maxLength: 8 }),
        (changes) => {
          const bytes = Buffer.from(hello);
          for (const [at, value] of changes) bytes[at % bytes.length] = value;
          const result = parseClientHello(bytes);
          if (result.kind === 'hello' && result.hello.serverName !== undefined)
            expect(result.hello.serverName).toMatch(/^[a-z0-9_.-]{1,253}$/);
        },
      ),
      { numRuns: 800 },
    );
  });

  it.each([
    ['two names', [serverName('a.example.org', 'b.example.org')]],
    ['the extension twice', [serverName('a.example.org'), serverName('b.example.org')]],
    ['a name with a zero byte', [serverName('a.example.org\0.evil.org')]],
    ['an empty name', [serverName('')]],
    ['a name that is not ASCII', [serverName('bücher.example')]],
  ] as [string, [number, Buffer][]][])('is refused with %s', (_what, extensions) => {
    expect(parseClientHello(helloWith(extensions))).toEqual({ kind: 'bad' });
  });

  it('tells of an encrypted one', () => {
    expect(
      parseClientHello(helloWith([serverName('outer.example.org'), [0xfe0d, Buffer.alloc(64)]])),
    ).toMatchObject({
      hello: { serverName: 'outer.example.org', encrypted: true },
    });
  });

  it('is bounded', () => {
    expect(parseClientHello(Buffer.from([22, 3, 1, 64, 0, 1, 255, 255, 255]))).toEqual({ kind: 'bad' });
    const endless = Buffer.concat([
      Buffer.from([22, 3, 1, 0, 4, 1, 0, 127, 0]),
      Buffer.alloc(7 * MAX_HELLO, Buffer.from([22, 3, 1, 0, 1, 0])),
    ]);
    const began = performance.now();
    expect(parseClientHello(endless)).toEqual({ kind: 'bad' });
    expect(performance.now() - began).toBeLessThan(100);
  });
});

describe('the first bytes', () => {
  it.each([
    ['GET / HTTP/1.1\r\n', 'http1'],
    ['\r\n\nget / http/1.1\r\n', 'http1'],
    ['BREW /pot HTTP/1.0\n', 'http1'],
    ['PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n', 'http2'],
    ['SSH-2.0-OpenSSH_9.2p1 Debian-2\r\n', 'other'],
    ['EHLO example.org\r\n', 'other'],
    ['*1\r\n$4\r\nPING\r\n', 'other'],
    ['\0\0\0\x08\x04\xd2\x16\x2f', 'other'],
    ['AMQP\0\0\x09\x01', 'other'],
    ['\x16\x03\x01\0\0', 'bad'],
    ['GET / HT', undefined],
    ['\r\n', undefined],
    ['GET', undefined],
    ['', undefined],
  ])('%j are %s', (text, kind) => {
    expect(judgeFirstBytes(Buffer.from(text, 'latin1'))?.kind).toBe(kind);
  });

  it('are judged, or more are asked for, whatever is sent', () => {
    fc.assert(
      fc.property(fc.uint8Array({ maxLength: 300 }), (bytes) => {
        judgeFirstBytes(Buffer.from(bytes));
      }),
      { numRuns: 800 },
    );
    expect(judgeFirstBytes(Buffer.alloc(20_000, 'A'))).toEqual({ kind: 'other' });
    expect(judgeFirstBytes(Buffer.alloc(20_000, '\n'))).toEqual({ kind: 'other' });
  });

  it('are put back, in whatever pieces they came', async () => {
    const text = 'GET /some/path HTTP/1.1\r\nHost: example.org\r\n\r\nrest';
    await fc.assert(
      fc.asyncProperty(fc.array(fc.integer({ min: 1, max: text.length }), { maxLength: 5 }), async (cuts) => {
        const [inside, outside] = duplexPair();
        const first = readFirstBytes(outside);
        const at = [0, ...cuts.toSorted((one, other) => one - other), text.length];
        for (const [index, cut] of at.slice(1).entries()) {
          inside.write(text.slice(at[index], cut));
          await new Promise(setImmediate);
        }
        inside.end();
        expect(await first).toEqual({ kind: 'http1' });
        let all = '';
        for await (const chunk of outside) all += String(chunk);
        expect(all).toBe(text);
      }),
      { numRuns: 50 },
    );
  });

  it('tell of a stream that ends, stays silent or hesitates', async () => {
    const [inside, outside] = duplexPair();
    inside.end('GET / ');
    expect(await readFirstBytes(outside)).toEqual({ kind: 'other', rest: Buffer.from('GET / ') });
    const [, silent] = duplexPair();
    expect(await readFirstBytes(silent, { timeoutMs: 10 })).toEqual({ kind: 'nothing' });
    const [slow, hesitant] = duplexPair();
    slow.write('GE');
    expect(await readFirstBytes(hesitant, { patienceMs: 10 })).toEqual({ kind: 'undecided' });
    expect(String(hesitant.read())).toBe('GE');
  });
});
