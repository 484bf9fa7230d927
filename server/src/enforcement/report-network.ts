/**
 * The network of a report: names that lead to its target, a policy, and other sandboxes that are only
 * registered.
 */
import { newId, type NetworkPolicy, type SandboxId } from '@cay/sdk/protocol';
import type { OpenedEgress } from '../egress/open-egress.ts';
import { addressKind } from '../lib/address-kind.ts';
import type { ReportNetwork } from './enforcement-case.ts';
import type { Target } from './target.ts';

export function openNetwork(
  egress: OpenedEgress,
  sandbox: SandboxId,
  target: Target,
  placeholder: string,
): ReportNetwork & { close(): void } {
  const resolved: string[] = [];
  const [neighbour, stranger] = [newId('sbx'), newId('sbx')];
  const usual = policyFor(target);
  const member = (id: SandboxId, project: string, hostname: string, network: string) =>
    egress.networks.set(id, { project, hostname, networks: [network] });
  function prepare(): void {
    stage(egress, sandbox, { target, placeholder, resolved });
    egress.policies.set(sandbox, [usual, 'public']);
    member(sandbox, 'report', 'self', 'report');
  }
  prepare();
  for (const id of [neighbour, stranger]) egress.policies.set(id, ['none']);
  member(neighbour, 'report-other', 'neighbour', 'report');
  member(stranger, 'report', 'stranger', 'other');
  return {
    neighbour,
    resolved: () => resolved,
    async during(policy, work) {
      if (policy === undefined) egress.policies.remove(sandbox);
      else egress.policies.set(sandbox, [policy, 'public']);
      try {
        await work();
      } finally {
        prepare();
      }
    },
    close() {
      for (const id of [neighbour, stranger]) egress.policies.remove(id);
    },
  };
}

/** Where no name may lead. */
function specialNames({ own }: Target): Record<string, string[]> {
  return {
    'to-loopback': ['127.0.0.1'],
    'to-loopback6': ['::1'],
    'to-own': [own[0] ?? '10.0.0.1'],
    'to-metadata': ['169.254.169.254'],
    'to-private': ['10.0.0.1'],
    'to-mapped': ['::ffff:7f00:1'],
    'to-unspecified': ['0.0.0.0'],
  };
}

/** Names that lead to the target or to where no name may lead. */
function stage(
  egress: OpenedEgress,
  sandbox: SandboxId,
  { target, placeholder, resolved }: { target: Target; placeholder: string; resolved: string[] },
): void {
  const { address } = target;
  const special = specialNames(target);
  let flips = 0;
  egress.stage(sandbox, {
    trusted: [target.certificate],
    timeouts: { connectMs: 2000, firstBytesMs: 3000 },
    secrets: () => [{ name: 'TOKEN', placeholder, value: `secret-${placeholder}` }],
    classify: (one) => ({
      address: one,
      kind: one === address ? 'public' : addressKind(one),
      own: target.own.includes(one),
    }),
    resolver: {
      async resolve(name) {
        resolved.push(name);
        const label = name.replace(/\.report\.example$/, '');
        if (label === 'flip') return flips++ === 0 ? [address] : ['127.0.0.1'];
        return special[label] ?? [address];
      },
    },
  });
}

/** The policy that the cases are about. */
function policyFor(target: Target): NetworkPolicy {
  const { port } = target;
  const names = ['web', 'flip', ...Object.keys(specialNames(target))].map(
    (label) => `${label}.report.example:${port}`,
  );
  return {
    base: 'none',
    allow: [
      ...names,
      `*.wild.report.example:${port}`,
      { to: `api.report.example:${port}`, methods: ['GET'], paths: ['/open'] },
      { to: `vault.report.example:${port}`, put: { as: 'placeholder', secret: 'TOKEN' } },
    ],
    deny: [`denied.wild.report.example:${port}`],
  };
}
