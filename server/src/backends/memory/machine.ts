import { setTimeout } from 'node:timers/promises';
import type { Limits } from '@cay/sdk/protocol';
import type { FileTree } from './file-tree.ts';
import type { Gate } from './gate.ts';
import type { Dial } from './memory-egress.ts';
import type { MemoryPorts } from './memory-ports.ts';
import type { Program } from './program.ts';

/** How often a program that computes is asked how much of the CPU it may have. */
const SLICE_MS = 10;

/** What the programs of one incarnation share, and what they use of it. */
export interface Machine {
  readonly tree: FileTree;
  readonly ports: MemoryPorts;
  readonly dial: Dial;
  readonly programs: ReadonlyMap<string, Program>;
  /** Aborted when the incarnation is over, with the error that pending calls reject with. */
  readonly gone: AbortSignal;
  readonly limits: Limits;
  readonly usage: Usage;
  /** Closed while the sandbox is frozen. */
  readonly gate: Gate;
}

export interface Usage {
  cpuMs: number;
  memoryBytes: number;
  programs: number;
  computing: number;
  oomKills: number;
}

export const newUsage = (): Usage => ({ cpuMs: 0, memoryBytes: 0, programs: 0, computing: 0, oomKills: 0 });

/** Takes as long as the work would, if all who compute shared the sandbox's cores evenly. */
export async function compute(
  { limits, usage, gate }: Machine,
  cpuMs: number,
  signal: AbortSignal,
): Promise<void> {
  usage.computing++;
  try {
    for (let left = cpuMs; left > 0;) {
      const share = Math.min(1, (limits.cpus ?? Infinity) / usage.computing);
      const work = Math.min(left, SLICE_MS * share);
      await gate.pass(signal);
      await setTimeout(work / share, undefined, { signal });
      await gate.pass(signal);
      usage.cpuMs += work;
      left -= work;
    }
  } finally {
    usage.computing--;
  }
}
