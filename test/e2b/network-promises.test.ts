/**
 * What E2B promises of a sandbox's network, tried through its own client with programs that connect to
 * public names and addresses on the usual ports. A stand-in answers for those.
 */
import { ALL_TRAFFIC, CommandExitError, Sandbox, type SandboxOpts } from 'e2b';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import {
  testStartedEgress,
  type TestStartedEgress,
} from '../../server/src/egress/testing/test-started-egress.ts';
import { newAuthority, openAuthority } from '../../server/src/egress/tls/authority.ts';
import { whyNoLocal } from '../support/local-platform.ts';
import { openE2bPlatform, type E2bPlatform } from './e2b-platform.ts';
import { type Internet, openInternet } from './internet.ts';

const [ONE, EIGHT, EIGHT_FOUR] = ['1.1.1.1', '8.8.8.8', '8.8.4.4'];
const [check, api, other] = ['check.example.org', 'api.example.org', 'other.example.com'];
const why = whyNoLocal();

describe.skipIf(why !== undefined).for([
  { runtime: 'runc', addresses: true },
  // There only names are reached.
  { runtime: 'runsc', addresses: false },
])(
  `E2B's promises of the network on $runtime${why ? ` (skipped: ${why})` : ''}`,
  ({ runtime, addresses }) => {
    const outside = openAuthority(newAuthority());
    let internet: Internet;
    let egress: TestStartedEgress;
    let platform: E2bPlatform;

    beforeAll(async () => {
      const named = ['93.184.216.10', '93.184.216.11', '93.184.216.12'];
      internet = await openInternet([ONE, EIGHT, EIGHT_FOUR, ...named], outside);
      egress = await testStartedEgress({ trusted: [outside.certificate], proxy: internet.proxy });
      for (const [index, name] of [check, api, other].entries()) egress.names.set(name, [named[index]!]);
      platform = await openE2bPlatform(runtime, { egress });
    }, 120_000);
    afterAll(async () => {
      await platform?.[Symbol.asyncDispose]();
      egress?.[Symbol.dispose]();
      internet?.[Symbol.dispose]();
    }, 60_000);

    async function having(options: SandboxOpts, use: (sandbox: Sandbox) => Promise<void>): Promise<void> {
      const sandbox = await Sandbox.create({ ...platform.access, ...options });
      try {
        await use(sandbox);
      } finally {
        await sandbox.kill();
      }
    }

    /** Which of them answer. The others make curl fail, in less time than it would wait. */
    async function reached(sandbox: Sandbox, targets: readonly string[]): Promise<string[]> {
      const answers = targets.map(async (target) => {
        const command = `curl -k --connect-timeout 3 --max-time 5 -Is ${target}`;
        try {
          return (await sandbox.commands.run(command)).stdout.startsWith('HTTP/1.1 200');
        } catch (error) {
          if (error instanceof CommandExitError && error.exitCode > 0) return false;
          throw error;
        }
      });
      const all = await Promise.all(answers);
      return targets.filter((_, index) => all[index]);
    }

    const secure = (name: string) => `https://${name}`;
    const names = [check, api, other].flatMap((name) => [`http://${name}`, secure(name)]);

    it('reach the internet by default and with allowInternetAccess', { timeout: 60_000 }, async () => {
      for (const options of [{}, { allowInternetAccess: true }])
        await having(options, async (sandbox) => {
          expect(await reached(sandbox, names)).toEqual(names);
          const asked = `curl -sk -o /dev/null -w '%{http_code}' https://${check}/generate_204`;
          expect((await sandbox.commands.run(asked)).stdout).toBe('204');
        });
    });

    it('reach nothing with allowInternetAccess: false', { timeout: 60_000 }, async () => {
      const asked = internet.asked.length;
      await having({ allowInternetAccess: false }, async (sandbox) => {
        expect(await reached(sandbox, [...names, secure(ONE)])).toEqual([]);
      });
      await having({ network: { denyOut: ({ allTraffic }) => [allTraffic] } }, async (sandbox) => {
        expect(await reached(sandbox, [...names, secure(ONE), secure(EIGHT)])).toEqual([]);
      });
      expect(internet.asked.slice(asked)).toEqual([]);
    });

    it(
      'reach hosts and globs that allowOut has, over all that denyOut has',
      { timeout: 60_000 },
      async () => {
        const denyOut = [ALL_TRAFFIC];
        await having({ network: { denyOut, allowOut: [api] } }, async (sandbox) => {
          expect(await reached(sandbox, names)).toEqual([`http://${api}`, secure(api)]);
        });
        await having({ network: { denyOut, allowOut: ['*.example.org'] } }, async (sandbox) => {
          expect(await reached(sandbox, names)).toEqual(names.slice(0, 4));
        });
      },
    );

    it('get headers of rules on their requests', { timeout: 60_000 }, async () => {
      const headers = { 'X-Key': 'from outside' };
      await having({ network: { rules: { [api]: [{ transform: { headers } }] } } }, async (sandbox) => {
        const seen = async (name: string) =>
          JSON.parse((await sandbox.commands.run(`curl -sSk https://${name}/`)).stdout) as unknown;
        expect(await seen(api)).toEqual({ host: api, key: 'from outside' });
        expect(await seen(check)).toEqual({ host: check, key: null });
      });
    });

    it('have what updateNetwork says, and no more', { timeout: 60_000 }, async () => {
      const at = [secure(check), secure(api)];
      await having({}, async (sandbox) => {
        expect(await reached(sandbox, at)).toEqual(at);
        await sandbox.updateNetwork({ denyOut: [api] });
        expect(await reached(sandbox, at)).toEqual([secure(check)]);
        await sandbox.updateNetwork({ allowInternetAccess: false });
        expect(await reached(sandbox, at)).toEqual([]);
        await sandbox.updateNetwork({});
        expect(await reached(sandbox, at)).toEqual(at);
      });
    });

    const none = addresses ? '' : ` (skipped: on ${runtime} addresses are not reached)`;
    it.skipIf(!addresses).for<[string, SandboxOpts['network'], string[]]>([
      ['an address over all', { denyOut: [ALL_TRAFFIC], allowOut: [ONE] }, [ONE]],
      ['several', { denyOut: ({ allTraffic }) => [allTraffic], allowOut: [ONE, EIGHT] }, [ONE, EIGHT]],
      ['all but an address', { denyOut: [EIGHT] }, [ONE, EIGHT_FOUR]],
      ['all but a range', { denyOut: ['8.8.0.0/16'] }, [ONE]],
      ['a range over all', { denyOut: [ALL_TRAFFIC], allowOut: ['8.8.0.0/16'] }, [EIGHT, EIGHT_FOUR]],
      ['an address over its range', { denyOut: ['8.8.0.0/16'], allowOut: [EIGHT] }, [ONE, EIGHT]],
      ['all over all', { denyOut: [ALL_TRAFFIC], allowOut: [ALL_TRAFFIC] }, [ONE, EIGHT, EIGHT_FOUR]],
    ])(`reach %s${none}`, { timeout: 60_000 }, async ([, network, expected]) => {
      const found = async (sandbox: Sandbox) => reached(sandbox, [ONE, EIGHT, EIGHT_FOUR].map(secure));
      await having({ network: network! }, async (sandbox) => {
        expect(await found(sandbox)).toEqual(expected.map(secure));
      });
      await having({}, async (sandbox) => {
        expect(await found(sandbox)).toHaveLength(3);
        const { denyOut, allowOut } = network!;
        await sandbox.updateNetwork({ ...(denyOut && { denyOut }), ...(allowOut && { allowOut }) });
        expect(await found(sandbox)).toEqual(expected.map(secure));
        await sandbox.updateNetwork({});
        expect(await found(sandbox)).toHaveLength(3);
      });
    });
  },
);
