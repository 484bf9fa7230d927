/**
 * Limits: what a sandbox gets when it takes all it can. They come last, because they may end what runs
 * inside.
 */
import { blocked, type EnforcementCase, open, skipped } from '../enforcement-case.ts';

const MiB = 1024 * 1024;

export const LIMITS: readonly EnforcementCase[] = [
  {
    id: 'limit.processes',
    title: 'more processes than its limit',
    async run({ probe, limits: { pids } }) {
      if (pids === null) return skipped('the platform has no limit of processes for each sandbox');
      const said = await probe.attempt(`processes ${2 * pids}`);
      const started = Number(/^started (\d+)/.exec(said)?.[1] ?? 0);
      return started > pids ? open(said) : blocked(said);
    },
  },
  {
    id: 'limit.files',
    title: 'open files without end',
    async run({ probe }) {
      const said = await probe.attempt('files 2000000');
      return said.includes('reached') ? open(said) : blocked(said);
    },
  },
  {
    id: 'limit.raise-files',
    title: 'raising its own limit of open files',
    async run({ probe, kernel }) {
      const said = await probe.attempt('call raise-files');
      return said === 'ok' && kernel === 'shared' ? open(said) : blocked(said);
    },
  },
  {
    id: 'limit.disk',
    title: 'more on disk than its limit',
    async run({ probe, limits: { diskBytes }, directory }) {
      if (diskBytes === null) return skipped('the platform has no limit of disk space for each sandbox');
      const said = await probe.attempt(`disk ${directory}/.cay-probe-disk ${diskBytes + 64 * MiB}`);
      return said.includes('reached') ? open(said) : blocked(said);
    },
  },
  {
    id: 'limit.memory',
    title: 'more memory than its limit',
    async run({ probe, limits: { memoryBytes } }) {
      if (memoryBytes === null) return skipped('the platform has no limit of memory for each sandbox');
      const said = await probe.attempt(`memory ${2 * memoryBytes}`);
      return said === 'reached' ? open(said) : blocked(said);
    },
  },
];
