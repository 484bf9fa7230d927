import {
  CapabilitiesSchema,
  HealthSchema,
  OrphansSchema,
  ReadinessSchema,
  VersionSchema,
} from '@cay/sdk/protocol';
import { z } from 'zod';
import type { Control } from '../../control/control.ts';
import type { Metrics } from '../http/metrics.ts';
import { Flag } from './parameters.ts';
import { route, type Route } from '../http/route.ts';

const tag = 'system';

export interface SystemOptions {
  control: Control;
  metrics: Metrics;
  version: string;
  /** Metrics need no key. */
  openMetrics: boolean;
  ready(): Promise<{ records: boolean; backend: boolean }>;
}

export function systemRoutes({ control, metrics, version, openMetrics, ready }: SystemOptions): Route[] {
  return [
    route({
      method: 'get',
      path: '/healthz',
      name: 'health',
      summary: 'Check that the server is alive',
      tag,
      access: 'open',
      answers: { 200: { description: 'It is alive', schema: z.object({ alive: z.literal(true) }) } },
      handle: ({ json }) => json({ alive: true }),
    }),
    route({
      method: 'get',
      path: '/readyz',
      name: 'readiness',
      summary: 'Check whether records and backend answer',
      tag,
      access: 'open',
      answers: {
        200: { description: 'They do', schema: ReadinessSchema },
        503: { description: 'They do not', schema: ReadinessSchema },
      },
      async handle({ json }) {
        const checks = await ready();
        const verdict = checks.records && checks.backend;
        return json({ ready: verdict, checks }, verdict ? 200 : 503);
      },
    }),
    route({
      method: 'get',
      path: '/metrics',
      name: 'metrics',
      summary: "Read the server's metrics",
      description: 'A key with the role `metrics` may do nothing else.',
      tag,
      access: openMetrics ? 'open' : 'metrics',
      answers: { 200: { description: "In Prometheus' text format", media: ['text/plain'] } },
      handle: async ({ context }) =>
        context.text(await metrics.text(), 200, {
          'Content-Type': 'text/plain; version=0.0.4; charset=utf-8',
        }),
    }),
    route({
      method: 'get',
      path: '/v1/health',
      name: 'getHealth',
      summary: 'Get the health of the server',
      description:
        'One verdict, and the findings that it comes from. Only admins see recent errors. Others see the number of sandboxes of their own project.',
      tag,
      answers: { 200: { description: 'The health', schema: HealthSchema } },
      handle: async ({ json, principal }) => json(await control.health(principal)),
    }),
    route({
      method: 'post',
      path: '/v1/admin/sweep',
      name: 'sweep',
      summary: 'Remove orphans',
      description:
        "Containers, cgroups, disks and files that are the installation's own and belong to no sandbox; on a cluster pods, volume claims and warm pools; and sandboxes that no record knows. The server looks for them by itself.",
      tag: 'admin',
      access: 'admin',
      query: z.object({ dryRun: Flag.optional() }).strict(),
      answers: { 200: { description: 'What was found', schema: OrphansSchema } },
      handle: async ({ json, principal, query }) => json({ orphans: await control.sweep(principal, query) }),
    }),
    route({
      method: 'get',
      path: '/v1/version',
      name: 'getVersion',
      summary: "Get the server's version",
      tag,
      answers: { 200: { description: 'The version', schema: VersionSchema } },
      handle: ({ json }) => json({ name: 'cay', version, api: 'v1' }),
    }),
    route({
      method: 'get',
      path: '/v1/capabilities',
      name: 'getCapabilities',
      summary: 'Get what sandboxes can do here',
      tag,
      answers: {
        200: {
          description: 'Each ability that was seen to work, and why others do not',
          schema: CapabilitiesSchema,
        },
      },
      handle: async ({ json, signal }) => json(await control.capabilities({ signal })),
    }),
  ];
}
