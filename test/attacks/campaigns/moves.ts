/**
 * Two tenants move sandboxes between two platforms while they use, stop, fork, snapshot and remove them, ask
 * for platforms that there are not, and for sandboxes of each other. A move succeeds or leaves everything as
 * it was: what a sandbox has is there afterwards, once, and is nobody else's.
 */
import type { Random } from '../../faults/model/random.ts';
import type { Campaign } from '../support/campaign.ts';
import type { TargetOptions, Tenant } from '../support/target.ts';

const PATIENCE_MS = 30_000;
const MOST = 4;
const LOSSES = ['memory', 'snapshots', 'limits', 'runtime', 'volumes'];

interface Box {
  id: string;
  tenant: Tenant;
  /** What is in its file. */
  text: string;
}

export const moves: Campaign = {
  name: 'moves',
  // Between the first two every move fails when its snapshots are copied: they keep them in other forms.
  targets: [{ backend: 'local', runtime: 'runc' }, { backend: 'docker' }],
  // In place of the one of the target.
  flags: (on) => ['--backend', platformsOf(on).join(',')],
  async open({ alice, bob, docker }, random) {
    const platforms = platformsOf({ backend: docker ? 'docker' : 'local' });
    const boxes: Box[] = [];
    let made = 0;
    const call = (tenant: Tenant, method: string, path: string, body?: unknown) =>
      tenant.call(method, path, {
        ...(body !== undefined && { body }),
        signal: AbortSignal.timeout(PATIENCE_MS),
      });

    async function make(tenant: Tenant): Promise<string> {
      const text = `${tenant.name} ${++made}`;
      const body = { platform: random.pick(platforms) };
      const { status, json, text: said } = await call(tenant, 'POST', '/v1/sandboxes', body);
      if (status !== 201) throw new Error(`a create was answered ${status} ${said.slice(0, 300)}`);
      await tenant.exec(json.id, ['sh', '-c', `echo ${text} > /home/user/own`]);
      boxes.push({ id: json.id, tenant, text });
      return `${tenant.name} makes one on ${body.platform}`;
    }

    /** Whoever it was moved by, and wherever it is, it has what it had. */
    async function check({ id, tenant, text }: Box): Promise<void> {
      const before = await call(tenant, 'GET', `/v1/sandboxes/${id}`);
      if (before.json?.state === 'stopped') await call(tenant, 'POST', `/v1/sandboxes/${id}/start`, {});
      const { stdout } = await tenant.exec(id, ['cat', '/home/user/own']);
      if (stdout.trim() !== text) throw new Error(`"${stdout.slice(0, 100)}" is where "${text}" was`);
    }

    return {
      async next() {
        const words = await oneCase();
        if (boxes.length > 0) await check(random.pick(boxes));
        return words;
      },
    };

    async function oneCase(): Promise<string> {
      if (boxes.length < MOST && random.chance(0.5)) return make(random.pick([alice, bob]));
      if (boxes.length === 0) return make(alice);
      const box = random.pick(boxes);
      const other = box.tenant === alice ? bob : alice;
      if (random.chance(0.2)) {
        const { status } = await call(other, 'POST', `/v1/sandboxes/${box.id}/move`, wish(random, platforms));
        if (status !== 404 && status !== 400) throw new Error(`another tenant's move was answered ${status}`);
        return `a move by another → ${status}`;
      }
      if (random.chance(0.15)) {
        boxes.splice(boxes.indexOf(box), 1);
        const { status, text } = await call(box.tenant, 'DELETE', `/v1/sandboxes/${box.id}`);
        if (status >= 300) throw new Error(`a removal was answered ${status} ${text.slice(0, 300)}`);
        return 'removed';
      }
      const meanwhile = random.pick([undefined, 'snapshots', 'stop', 'pause', 'exec', 'move'] as const);
      const body = wish(random, platforms);
      const beside =
        meanwhile === undefined
          ? undefined
          : call(
              box.tenant,
              'POST',
              `/v1/sandboxes/${box.id}/${meanwhile}`,
              meanwhile === 'exec' ? { argv: ['true'] } : meanwhile === 'move' ? wish(random, platforms) : {},
            );
      const [moved, also] = await Promise.all([
        call(box.tenant, 'POST', `/v1/sandboxes/${box.id}/move`, body),
        beside,
      ]);
      const words = `move ${JSON.stringify(body)} beside ${meanwhile} → ${moved.status} ${moved.json?.error?.code ?? ''}, ${also?.status}`;
      for (const reply of [moved, also])
        if (reply?.status === 500) throw new Error(`${words}: ${reply.text.slice(0, 500)}`);
      return words;
    }
  },
};

function platformsOf({ backend }: TargetOptions): string[] {
  return ['local', backend === 'docker' ? 'docker' : 'memory'];
}

function wish(random: Random, platforms: readonly string[]): Record<string, unknown> {
  return {
    platform: random.chance(0.85)
      ? random.pick(platforms)
      : random.pick<unknown>(['kubernetes', '..', '', null, 7]),
    ...(random.chance(0.9) && { drop: random.chance(0.6) ? LOSSES : [random.pick([...LOSSES, 'x'])] }),
    ...(random.chance(0.2) && { dryRun: true }),
  };
}
