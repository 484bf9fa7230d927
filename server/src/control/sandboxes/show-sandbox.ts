import type { Sandbox } from '@cay/sdk/protocol';
import { withToken } from '../tenants/preview-tokens.ts';
import { NO_IDLE_POLICY, NO_RETENTION, type SandboxRow } from '../../records/tables/sandbox-row.ts';

/** A record as the API shows it. The environment is left out: it may hold secrets. */
export function showSandbox(
  row: SandboxRow,
  previewOf: (port: number) => { url: string; token(): string },
): Sandbox {
  return {
    id: row.id,
    name: row.name,
    project: row.project,
    state: row.state,
    ...(row.reason !== null && { reason: row.reason }),
    ...(row.message !== null && { message: row.message }),
    backend: row.backend,
    ...(row.spec.platform !== undefined && { platform: row.spec.platform }),
    runtime: row.runtime,
    template: row.spec.template,
    labels: row.labels,
    limits: row.spec.limits,
    workdir: row.spec.workdir,
    user: row.spec.user,
    readOnlyRoot: row.spec.readOnlyRoot,
    ports: row.ports.map(({ port, visibility }) => {
      const preview = previewOf(port);
      const { url } = preview;
      if (visibility === 'public') return { port, visibility, url, openUrl: url };
      const token = preview.token();
      return { port, visibility, url, openUrl: withToken(url, token), token };
    }),
    networks: row.networks,
    mounts: row.spec.mounts ?? [],
    incarnation: row.incarnation,
    uid: row.uid,
    createdAtMs: row.createdAtMs,
    startedAtMs: row.startedAtMs,
    timeoutMs: row.timeoutMs,
    onTimeout: row.onTimeout,
    expiresAtMs: row.expiresAtMs,
    pausedAs: row.pausedAs,
    idle: row.idle ?? NO_IDLE_POLICY,
    leaseUntilMs: row.leaseUntilMs,
    usedAtMs: row.usedAtMs,
    retention: row.retention ?? NO_RETENTION,
    onBoot: row.onBoot,
    base: row.base,
    turn: row.turn,
  };
}
