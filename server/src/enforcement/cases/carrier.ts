/**
 * What carries connections: a policy that changes, one that is gone, other sandboxes, and more than it may
 * carry.
 */
import type { Duplex } from 'node:stream';
import { setTimeout as sleep } from 'node:timers/promises';
import { blocked, broken, type CaseWorld, type EnforcementCase, open, skipped } from '../enforcement-case.ts';
import { exchange } from './http.ts';

const NAME = 'web.report.example';
/** Each is a process inside, and sandboxes may have few. */
const SLOW = 12;
const NOTHING = 'this server carries nothing out';

/** Says a word, and resolves what comes back, or that nothing does. */
async function say(end: Duplex, word: string): Promise<string> {
  if (end.destroyed) return 'it has ended';
  const said = new Promise<string>((resolve) => {
    const ended = () => resolve('it has ended');
    end.once('data', (chunk: Buffer) => resolve(`answer ${chunk.toString('latin1').slice(0, 40)}`));
    end.once('end', ended).once('close', ended);
  });
  end.write(`RAW ${word}\n`);
  return Promise.race([said, sleep(1500, 'no answer')]);
}

/** A connection that is open, and what becomes of it while something has changed. */
const cut = (
  id: string,
  title: string,
  change: (world: CaseWorld, during: () => Promise<void>) => Promise<void>,
): EnforcementCase => ({
  id: `carrier.${id}`,
  title,
  async run(world) {
    const { probe, target } = world;
    if (!world.network) return skipped(NOTHING);
    const end = await probe.relay(NAME, target.port);
    if (typeof end === 'string') return broken(end);
    const [before, after] = [target.word(), target.word()];
    if (!(await say(end, before)).startsWith('answer')) return broken('an allowed connection has no answer');
    let said = '';
    let again: Duplex | string = '';
    await change(world, async () => {
      said = await say(end, after);
      again = await probe.relay(NAME, target.port);
      if (typeof again !== 'string') await say(again, `${after}-again`);
    });
    end.destroy();
    if (typeof again !== 'string') (again as Duplex).destroy();
    return target.saw(after) ? open(`the target got it (${said})`) : blocked(said);
  },
});

/** A name that must have no address. */
const absent = (id: string, title: string, name: (world: CaseWorld) => string): EnforcementCase => ({
  id: `peer.${id}`,
  title,
  async run(world) {
    if (!world.network) return skipped(NOTHING);
    const said = await world.probe.attempt(`lookup ${name(world)} 1 2000`);
    if (/^code 0 records [1-9]/.test(said)) return open(`it has an address (${said})`);
    const end = await world.probe.relay(name(world), 8000);
    if (typeof end === 'string') return blocked(`${said}, ${end}`);
    end.destroy();
    return open('it is connected');
  },
});

export const CARRIER: readonly EnforcementCase[] = [
  cut('rule-gone', 'a connection that is open when its rule goes away', (world, during) =>
    world.network!.during('none', during),
  ),
  cut('policy-gone', 'connections while the carrier knows no policy, as after its restart', (world, during) =>
    world.network!.during(undefined, during),
  ),
  absent('other-project', 'a sandbox of another project, in a network of the same name', () => 'neighbour'),
  absent('other-network', 'a sandbox of the same project, in another network', () => 'stranger'),
  absent('by-id', 'a sandbox of another project by its id', ({ network }) =>
    network!.neighbour.replace('_', '-'),
  ),
  {
    id: 'carrier.names-below-star',
    title: 'more new names below a star than its limit',
    async run(world) {
      if (!world.network) return skipped(NOTHING);
      const word = world.target.word();
      const { port } = world.target;
      const limited = { allow: [`*.wild.report.example:${port}`], limits: { namesPerMinute: 3 } };
      await world.network.during(limited, async () => {
        for (let at = 0; at < 8; at++) {
          const end = await world.probe.relay(`${word}-${at}.wild.report.example`, port);
          if (typeof end === 'string') continue;
          await say(end, word);
          end.destroy();
        }
      });
      const left = world.network.resolved().filter((name) => name.startsWith(word)).length;
      return left > 3 ? open(`${left} names left`) : blocked(`${left} of 8 names left`);
    },
  },
  {
    id: 'carrier.lookups',
    title: 'ten thousand lookups',
    async run(world) {
      if (!world.network) return skipped(NOTHING);
      const before = world.network.resolved().length;
      const said = await world.probe.attempt('lookups 10000 flood.wild.report.example');
      const left = world.network.resolved().length - before;
      if (left > 0) return open(`${left} queries left (${said})`);
      // Others go on: a name that is allowed is answered soon after.
      for (let tries = 0; tries < 10; tries++, await sleep(500)) {
        const end = await world.probe.relay(NAME, world.target.port);
        if (typeof end === 'string') continue;
        const answer = await say(end, world.target.word());
        end.destroy();
        if (answer.startsWith('answer')) return blocked(`no query left (${said})`);
      }
      return broken(`no allowed name is answered afterwards (${said})`);
    },
  },
  {
    id: 'carrier.slow-head',
    title: 'a request that is sent letter by letter and never ends',
    async run(world) {
      if (!world.network) return skipped(NOTHING);
      const before = world.target.arrivals();
      const host = `api.report.example:${world.target.port}`;
      const letters = `GET /open HTTP/1.1\r\nHost: ${host}\r\nX: `.slice(0, 24).split('');
      const said = await exchange(world, 'api.report.example', letters);
      return world.target.arrivals() > before
        ? open('the target was connected to')
        : blocked(`nothing was passed on (${said.slice(0, 40)})`);
    },
  },
  {
    id: 'carrier.slow-many',
    title: 'many requests that never end (slow loris)',
    async run(world) {
      if (!world.network) return skipped(NOTHING);
      const { port } = world.target;
      const before = world.target.arrivals();
      const held: Duplex[] = [];
      for (let at = 0; at < SLOW; at++) {
        const end = await world.probe.relay('api.report.example', port);
        if (typeof end === 'string') continue;
        held.push(end);
        end.write(`GET /open HTTP/1.1\r\nHost: api.report.example:${port}\r\nX-${at}: `);
      }
      const arrived = world.target.arrivals() - before;
      const began = performance.now();
      const host = `${NAME}:${port}`;
      const said = await exchange(world, NAME, [`GET /other HTTP/1.1\r\nHost: ${host}\r\n\r\n`]);
      const took = Math.round(performance.now() - began);
      for (const end of held) end.destroy();
      if (arrived > 0) return open(`the target was connected to ${arrived} times`);
      if (!said.startsWith('HTTP/1.1 200')) return broken(`others wait for them (${said.slice(0, 40)})`);
      return blocked(`${held.length} wait, and another is answered in ${took} ms`);
    },
  },
  {
    id: 'carrier.bomb',
    title: 'an answer that grows a thousandfold when it is unpacked',
    async run(world) {
      if (!world.network) return skipped(NOTHING);
      const from = process.memoryUsage().rss;
      const host = `${NAME}:${world.target.port}`;
      const request = `GET /bomb HTTP/1.1\r\nHost: ${host}\r\nAccept-Encoding: gzip\r\nConnection: close\r\n\r\n`;
      // The first answer takes the target a while.
      let said = 'no answer';
      for (let tries = 0; tries < 3 && said === 'no answer'; tries++)
        said = await exchange(world, NAME, [request]);
      const grown = Math.round((process.memoryUsage().rss - from) / 2 ** 20);
      if (!said.startsWith('HTTP/1.1 200')) return broken(said.slice(0, 80));
      return grown > 192 ? open(`the server grew by ${grown} MiB`) : blocked('it is passed on as it is');
    },
  },
];
