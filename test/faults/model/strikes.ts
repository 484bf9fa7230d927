/** The faults. Each strikes once in a round, at a random moment, and says what it did. */
import { readdir, readFile } from 'node:fs/promises';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Installation } from './installation.ts';
import type { Model } from './model.ts';
import type { Random } from './random.ts';

export interface Scene {
  installation: Installation;
  model: Model;
  random: Random;
  /** True once the round is over. */
  over(): boolean;
}

export const STRIKES: Record<string, (scene: Scene) => Promise<string>> = {
  /** The server is killed. */
  async kill({ installation }) {
    await installation.kill('SIGKILL');
    return 'server killed';
  },

  /** The server is told to end, and lets go. */
  async terminate({ installation }) {
    await installation.kill('SIGTERM');
    return 'server told to end';
  },

  /** The server stands still for a while, as on a machine that was suspended. */
  async halt({ installation, random }) {
    installation.server?.kill('SIGSTOP');
    const ms = 200 + random.below(800);
    await sleep(ms);
    installation.server?.kill('SIGCONT');
    return `server stopped for ${ms} ms`;
  },

  /** A program that the server has started (a runtime, a filesystem's command) is killed. */
  async child({ installation, over }) {
    const server = installation.server?.pid;
    for (let tries = 0; tries < 400 && !over(); tries++) {
      const pid = server === undefined ? undefined : (await childrenOf(server))[0];
      if (pid === undefined) {
        await sleep(2);
        continue;
      }
      const name = await readFile(`/proc/${pid}/comm`, 'utf8').catch(() => '?');
      try {
        process.kill(pid, 'SIGKILL');
        return `child ${name.trim()} killed`;
      } catch {
        // It was gone first.
      }
    }
    return 'no child was seen';
  },

  /** Every process of one sandbox is killed. */
  async sandbox({ installation, model, random }) {
    const groups = await installationGroups(installation);
    const group = groups.length === 0 ? undefined : random.pick(groups);
    // Which box it is of is not known here, so any may be hurt.
    for (const box of model.boxes.values()) box.hurt = true;
    if (group === undefined) return 'no sandbox was running';
    for (const pid of (await readFile(`${group}/cgroup.procs`, 'utf8').catch(() => '')).split('\n').filter(Boolean)) {
      try {
        process.kill(Number(pid), 'SIGKILL');
      } catch {
        // It was gone first.
      }
    }
    return 'processes of one sandbox killed';
  },
};

async function childrenOf(pid: number): Promise<number[]> {
  const found: number[] = [];
  for (const thread of await readdir(`/proc/${pid}/task`).catch(() => [])) {
    const children = await readFile(`/proc/${pid}/task/${thread}/children`, 'utf8').catch(() => '');
    found.push(...children.split(' ').filter(Boolean).map(Number));
  }
  return found;
}

async function installationGroups({ engineDir }: Installation): Promise<string[]> {
  const text = await readFile(`${engineDir}/installation.json`, 'utf8').catch(() => '{}');
  const { name } = JSON.parse(text) as { name?: string };
  const root = `/sys/fs/cgroup/pids/cay-${name}`;
  return (await readdir(root).catch(() => [])).filter((entry) => entry.startsWith('i-')).map((entry) => `${root}/${entry}`);
}
