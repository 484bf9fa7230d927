/** The faults. Each strikes once in a round, at a random moment, and says what it did. */
import { readdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Installation } from './installation.ts';
import type { Box, Model } from './model.ts';
import type { Random } from './random.ts';

export interface Scene {
  installation: Installation;
  model: Model;
  random: Random;
  /** True once the round is over. */
  over(): boolean;
}

export interface Strike {
  /** Needs a clock that can be set. */
  clock?: boolean;
  /** Needs a disk that can be filled. */
  disk?: boolean;
  /** Operations that are done more often while it waits. */
  favoured?: readonly string[];
  run(scene: Scene): Promise<string>;
}

/** Operations in the middle of which a runtime that dies does the most harm. */
const TRAVEL = ['snapshot', 'turn', 'pause', 'resume', 'rollback', 'fork', 'pair'] as const;
/** By then what waited for room on the disk is written. */
const WRITTEN_MS = 2500;
/** Pressure is over a good while after what made it. */
const PRESSED_MS = 20_000;
const RUNTIMES = ['runc', 'runsc', 'exe'];

export const STRIKES: Record<string, Strike> = {
  /** The server is killed. */
  kill: {
    async run({ installation }) {
      await installation.kill('SIGKILL');
      return 'server killed';
    },
  },

  /** The server is killed in the middle of a operation that copies, puts back or puts on disk. */
  killTravelling: {
    favoured: TRAVEL,
    async run({ installation, model, random, over }) {
      if (!(await travelling(model, over))) return 'nothing was under way';
      await sleep(random.below(150));
      await installation.kill('SIGKILL');
      return 'server killed in the middle of time travel';
    },
  },

  /** The server is told to end, and lets go. */
  terminate: {
    async run({ installation }) {
      await installation.kill('SIGTERM');
      return 'server told to end';
    },
  },

  /** The server stands still for a while, as on a machine that was suspended. */
  halt: {
    async run({ installation, random }) {
      installation.server?.kill('SIGSTOP');
      const ms = 200 + random.below(800);
      await sleep(ms);
      installation.server?.kill('SIGCONT');
      return `server stopped for ${ms} ms`;
    },
  },

  /** A program that the server has started (a runtime, a filesystem's command) is killed. */
  child: {
    async run({ installation, over }) {
      const pid = await childOf(installation, () => true, over);
      return pid === undefined || !kill(pid.pid, 'SIGKILL')
        ? 'no child was seen'
        : `child ${pid.name} killed`;
    },
  },

  /** A runtime's command is killed in the middle of a snapshot, a pause, a rollback or a fork. */
  runtime: {
    favoured: TRAVEL,
    async run({ installation, model, over }) {
      if (!(await travelling(model, over))) return 'nothing was under way';
      const child = await childOf(installation, (name) => RUNTIMES.includes(name), over);
      return child === undefined || !kill(child.pid, 'SIGKILL')
        ? 'no runtime was seen'
        : `runtime killed in the middle of time travel`;
    },
  },

  /** Every process of one sandbox is killed in the middle of its snapshot, pause, rollback or fork. */
  sandboxTravelling: {
    favoured: TRAVEL,
    async run({ installation, model, random, over }) {
      if (!(await travelling(model, over))) return 'nothing was under way';
      await sleep(random.below(100));
      return hurtOne(
        installation,
        [...model.boxes.values()].filter(({ taken }) => taken),
        random,
      );
    },
  },

  /** Every process of one sandbox is killed. */
  sandbox: {
    run: ({ installation, model, random }) => hurtOne(installation, [...model.boxes.values()], random),
  },

  /** The disk is slow: commands of the filesystem stand still for a while, one after the other. */
  slow: {
    favoured: TRAVEL,
    async run({ installation, random, over }) {
      let stopped = 0;
      for (let turn = 0; turn < 5 && !over(); turn++) {
        const child = await childOf(installation, (name) => name === 'btrfs', over);
        if (!child || !kill(child.pid, 'SIGSTOP')) continue;
        stopped++;
        await sleep(200 + random.below(800));
        kill(child.pid, 'SIGCONT');
      }
      return stopped === 0 ? 'no command of the filesystem was seen' : 'slow disk';
    },
  },

  /** The clock jumps, forward or back, and stays there for the rest of the round. */
  clock: {
    clock: true,
    async run({ installation, random }) {
      const seconds = random.pick([-86_400, -3600, -5, 5, 3600, 86_400]);
      installation.setClock(seconds);
      return `clock moved ${seconds > 0 ? 'forward' : 'back'}`;
    },
  },

  /** The disk under everything is full for a while. */
  full: {
    disk: true,
    favoured: TRAVEL,
    async run({ installation, model, random }) {
      // What a sandbox itself writes may fail now.
      for (const box of model.boxes.values()) box.hurt = true;
      model.full = true;
      await installation.disk?.fill();
      await sleep(500 + random.below(2500));
      await installation.disk?.empty();
      // Events of commands and files that wait for room are only in memory: a crash right now would lose
      // them.
      await sleep(WRITTEN_MS);
      model.pressedUntilMs = performance.now() + PRESSED_MS;
      model.full = false;
      return 'disk full';
    },
  },
};

/** Resolves when such a operation is under way, or false when the round is over first. */
async function travelling({ underWay }: Model, over: () => boolean): Promise<boolean> {
  while (!over()) {
    if (TRAVEL.some((operation) => (underWay.get(operation) ?? 0) > 0)) return true;
    await sleep(2);
  }
  return false;
}

async function hurtOne({ engineDir }: Installation, boxes: Box[], random: Random): Promise<string> {
  const { name } = JSON.parse(
    await readFile(join(engineDir, 'installation.json'), 'utf8').catch(() => '{}'),
  ) as { name?: string };
  while (boxes.length > 0) {
    const [box] = boxes.splice(random.below(boxes.length), 1);
    const record = await readFile(join(engineDir, 'sandboxes', `${box!.id}.json`), 'utf8').catch(() => '{}');
    const { instance } = JSON.parse(record) as { instance?: string };
    if (instance === undefined) continue;
    const pids = await readFile(`/sys/fs/cgroup/pids/cay-${name}/${instance}/cgroup.procs`, 'utf8').catch(
      () => '',
    );
    box!.hurt = true;
    if (pids.split('\n').filter((pid) => pid !== '' && kill(Number(pid), 'SIGKILL')).length > 0)
      return 'processes of one sandbox killed';
  }
  return 'no sandbox was running';
}

/** False if it was gone first. */
function kill(pid: number, signal: NodeJS.Signals): boolean {
  try {
    return process.kill(pid, signal);
  } catch {
    return false;
  }
}

/** Waits for a child of the server with such a name. */
async function childOf(
  { server }: Installation,
  wanted: (name: string) => boolean,
  over: () => boolean,
): Promise<{ pid: number; name: string } | undefined> {
  for (let tries = 0; tries < 1000 && !over() && server?.pid !== undefined; tries++) {
    for (const pid of await childrenOf(server.pid)) {
      const name = (await readFile(`/proc/${pid}/comm`, 'utf8').catch(() => '')).trim();
      // Between fork and exec it is still the server itself.
      if (name !== '' && name !== 'MainThread' && name !== 'node' && wanted(name)) return { pid, name };
    }
    await sleep(2);
  }
  return undefined;
}

async function childrenOf(pid: number): Promise<number[]> {
  const found: number[] = [];
  for (const thread of await readdir(`/proc/${pid}/task`).catch(() => [])) {
    const children = await readFile(`/proc/${pid}/task/${thread}/children`, 'utf8').catch(() => '');
    found.push(...children.split(' ').filter(Boolean).map(Number));
  }
  return found;
}
