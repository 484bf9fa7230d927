import type { SandboxCapabilities } from '@tanstack/ai-sandbox';

/** `killableProcesses` is read by releases after 0.2. */
export const CAPABILITIES: SandboxCapabilities & { killableProcesses: boolean } = {
  fs: true,
  exec: true,
  env: true,
  ports: true,
  backgroundProcesses: true,
  writableStdin: true,
  killableProcesses: true,
  snapshots: true,
  networkPolicy: true,
  durableFilesystem: true,
  fork: true,
};
