import fc from 'fast-check';
import { Buffer } from 'node:buffer';
import { describe, expect, it } from 'vitest';
import { giveBack } from '../lib/lent-memory.ts';
import { MESSAGE, ReceiveQueue } from './receive-queue.ts';

function drained(queue: ReceiveQueue): [number, string][] {
  const all: [number, string][] = [];
  for (let next = queue.next; next !== undefined; next = queue.next) {
    const received = queue.shift()!;
    expect(received.channel).toBe(next);
    all.push([received.channel, received.bytes.toString('latin1')]);
  }
  expect(queue.shift()).toBeUndefined();
  return all;
}

describe('the queue of a stream', () => {
  it('gives what came, in order, with messages whole and data of one channel perhaps joined', () => {
    const piece = fc.tuple(
      fc.constantFrom(MESSAGE, 0, 1, 2, 255),
      fc.constantFrom(1, 3, 100, 2047, 2048, 20_000),
    );
    const step = fc.oneof({ weight: 4, arbitrary: piece }, { weight: 1, arbitrary: fc.constant(undefined) });
    fc.assert(
      fc.property(fc.array(step, { maxLength: 200 }), (steps) => {
        const queue = new ReceiveQueue();
        const sent: [number, string][] = [];
        const got: [number, string][] = [];
        steps.forEach((one, index) => {
          if (!one) {
            const taken = queue.shift();
            if (taken) got.push([taken.channel, taken.bytes.toString('latin1')]);
            return;
          }
          const [channel, length] = one;
          sent.push([channel, String.fromCharCode(65 + (index % 26)).repeat(length)]);
          queue.push(channel, Buffer.alloc(length, 65 + (index % 26)));
        });
        got.push(...drained(queue));
        expect(joined(got)).toEqual(joined(sent));
        const messages = (all: [number, string][]) => all.filter(([channel]) => channel === MESSAGE);
        expect(messages(got)).toEqual(messages(sent));
      }),
    );
  });

  it('needs about as much memory as it holds bytes, also if they come one by one on two channels', () => {
    const queue = new ReceiveQueue();
    const before = process.memoryUsage();
    for (let index = 0; index < 262_144; index++) queue.push(index % 2, Buffer.from('x'));
    const { heapUsed, arrayBuffers } = process.memoryUsage();
    expect(heapUsed - before.heapUsed + arrayBuffers - before.arrayBuffers).toBeLessThan(40 * 1024 * 1024);
    expect(drained(queue).length).toBe(262_144);
  });

  it('keeps small parts of large chunks as copies, whose memory can be given back at once if it lends', () => {
    const chunk = Buffer.from(new ArrayBuffer(65_536));
    const part = chunk.subarray(100, 20_100);
    for (const lends of [true, false]) {
      const queue = new ReceiveQueue(lends);
      expect(queue.push(0, part)).toBe(false);
      const { bytes } = queue.shift()!;
      expect(bytes.equals(part)).toBe(true);
      giveBack(bytes);
      expect((bytes.buffer as ArrayBuffer).detached).toBe(lends);
    }
    const whole = new ReceiveQueue(true);
    expect(whole.push(0, chunk)).toBe(true);
    expect(chunk.length).toBe(65_536);
  });
});

/** Neighbours of one channel as one, since where they are cut means nothing. */
function joined(all: [number, string][]): [number, string][] {
  const result: [number, string][] = [];
  for (const [channel, text] of all) {
    const last = result.at(-1);
    if (last && last[0] === channel && channel !== MESSAGE) last[1] += text;
    else result.push([channel, text]);
  }
  return result;
}
