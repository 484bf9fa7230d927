/**
 * What an application may answer, from a grammar: status lines, headers, framing, interim answers, trailers,
 * endless, early, never.
 */
import type { Random } from '../../faults/model/random.ts';

export type Step =
  | { send: string }
  | { again: string; times: number }
  | { sleep: number }
  | { reset: true }
  | { hang: true };

export interface Plan {
  steps: Step[];
  /** It goes on, or keeps still, for longer than anybody waits. */
  endless: boolean;
  /** What it says, for the report of a finding. */
  words: string;
}

const STATUS = ['200', '200', '200', '204', '206', '301', '304', '404', '426', '500', '599', '101'];
const ODD_STATUS = '000 099 100 101 102 103 150 199 600 999 20 2000 -1 abc'.split(' ');
const ODD_REASON = ['', 'O\x01K', 'O\x7fK', '\xff\xfe', 'x'.repeat(60_000), 'a\tb', 'Switching Protocols'];
const ODD_VERSION = ['HTTP/1.0', 'HTTP/0.9', 'HTTP/2.0', 'http/1.1', 'HTTP/1.1.1', 'ICY'];
const HEADERS = [
  'Connection: Upgrade\r\nUpgrade: websocket',
  'Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=',
  'Connection: keep-alive',
  'Connection: content-length, close',
  'Upgrade: h2c',
  'Set-Cookie: cay_preview=x; Domain=.localhost',
  'Set-Cookie: =cay_preview=x',
  'Clear-Site-Data: "*"',
  'Alt-Svc: h3=":1"',
  'Strict-Transport-Security: max-age=1; includeSubDomains',
  'Service-Worker-Allowed: /',
  'Content-Security-Policy: default-src *',
  'Location: //evil',
  'Location: /\\evil',
  'X-C: \xff\xfe',
  'Trailer: X-T',
  'Content-Type: text/event-stream',
  'Content-Encoding: gzip',
  'Keep-Alive: timeout=999',
  'X-Request-Id: theirs',
  '__proto__: x',
  'constructor: y',
];
const ODD_HEADERS = [
  'X-A: \x7f',
  'X-B: \x01',
  'X-Nul: a\0b',
  ' folded',
  'no-colon',
  ': empty',
  'Bad Name: x',
  `X-Big: ${'y'.repeat(20_000)}`,
];
const ODD_FRAMING = [
  'Content-Length: 1\r\n',
  'Content-Length: 99999\r\n',
  'Content-Length: -1\r\n',
  'Transfer-Encoding: chunked\r\nContent-Length: 3\r\n',
  'Transfer-Encoding: gzip\r\n',
  'Content-Length: 2\r\nContent-Length: 3\r\n',
];

/** What an address may have, with room for the rest of the request's head. */
const LONGEST = 12_000;

export function hostilePlan(random: Random): Plan {
  for (;;) {
    const plan = anyPlan(random);
    if (planIn(plan).length <= LONGEST) return plan;
  }
}

function anyPlan(random: Random): Plan {
  const steps: Step[] = [];
  const said: string[] = [];
  let endless = false;
  // Of what is wrong in many ways only the first is ever looked at.
  const wild = random.pick([0, 0.05, 0.3]);
  const odd = <T>(make: () => T): T | undefined => (random.chance(wild) ? make() : undefined);
  const send = (text: string) => {
    said.push(text.length > 200 ? `${text.slice(0, 100)}…(${text.length})` : text);
    const run = /([^])\1{500,}/.exec(text);
    if (run) {
      // The plan has to fit into an address.
      const { 0: long, index } = run;
      if (index > 0) steps.push({ send: base64(text.slice(0, index)) });
      steps.push({ again: base64(long[0]!.repeat(100)), times: Math.floor(long.length / 100) });
      const rest = text.slice(index + Math.floor(long.length / 100) * 100);
      if (rest !== '') steps.push({ send: base64(rest) });
    } else if (random.chance(0.1))
      for (const part of text.match(/[^]{1,7}/g)?.slice(0, 40) ?? [])
        steps.push({ send: base64(part) }, { sleep: 1 });
    else steps.push({ send: base64(text) });
  };
  const again = (text: string, times: number) => {
    said.push(`${times} × ${text.slice(0, 60)}`);
    steps.push({ again: base64(text), times });
  };
  if (random.chance(0.04)) steps.push({ hang: true });
  if (random.chance(0.05))
    send(
      random.pick([
        '',
        '\0',
        'GARBAGE\r\n\r\n',
        '\r\n\r\n\r\n',
        'HTTP/',
        '\x16\x03\x01\x02',
        'x'.repeat(100_000),
      ]),
    );
  if (random.chance(0.2))
    again(
      `HTTP/1.1 ${random.pick(['100 Continue', '102 Processing', '103 Early Hints\r\nLink: </x>'])}\r\n\r\n`,
      random.pick([1, 3, 17, 5000]),
    );
  const version = odd(() => random.pick(ODD_VERSION)) ?? 'HTTP/1.1';
  const status = odd(() => random.pick(ODD_STATUS)) ?? random.pick(STATUS);
  const reason = odd(() => random.pick(ODD_REASON)) ?? 'OK';
  send(`${version} ${status} ${reason}${odd(() => '\n') ?? '\r\n'}`);
  for (let count = random.below(4); count > 0; count--)
    send(`${odd(() => random.pick(ODD_HEADERS)) ?? random.pick(HEADERS)}\r\n`);
  if (random.chance(0.03)) again(`X-Many: ${'z'.repeat(500)}\r\n`, 2000);
  const body = random.pick(['', 'hi', '\0'.repeat(1000), 'x'.repeat(70_000)]);
  const chunked = `${body.length.toString(16)}\r\n${body}\r\n0\r\n${odd(() => 'X-T: \x01\r\n') ?? ''}\r\n`;
  const usual = random.pick([`Content-Length: ${body.length}\r\n`, 'Transfer-Encoding: chunked\r\n', '']);
  const framing = odd(() => random.pick(ODD_FRAMING)) ?? usual;
  send(odd(() => framing) ?? `${framing}\r\n`);
  send(framing.includes('chunked') ? (odd(() => body) ?? chunked) : body);
  if (random.chance(0.1)) send('HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nsecond');
  if (random.chance(0.03)) {
    endless = true;
    again('e'.repeat(1000), 500_000);
  }
  const last = random.pick(['close', 'close', 'close', 'reset', 'hang']);
  if (last === 'reset') steps.push({ reset: true });
  if (last === 'hang') steps.push({ hang: true });
  endless ||= steps.some((step) => 'hang' in step);
  return { steps, endless, words: `${said.join('')} ${last}` };
}

export const planIn = ({ steps }: Pick<Plan, 'steps'>): string =>
  `plan=${Buffer.from(JSON.stringify(steps)).toString('base64url')}`;

function base64(text: string): string {
  return Buffer.from(text, 'latin1').toString('base64');
}
