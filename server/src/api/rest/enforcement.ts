import {
  EnforcementReportListSchema,
  EnforcementReportSchema,
  RunEnforcementSchema,
} from '@cay/sdk/protocol';
import { z } from 'zod';
import type { Control } from '../../control/control.ts';
import { route, type Route } from '../http/route.ts';

const tag = 'admin';
const PlatformParams = z.object({ name: z.string().min(1).max(64) });

export function enforcementRoutes({ enforcement }: Pick<Control, 'enforcement'>): Route[] {
  return [
    route({
      method: 'get',
      path: '/v1/platforms/{name}/enforcement',
      name: 'listEnforcementReports',
      summary: 'Get what a platform was last seen to enforce',
      description: 'The last report of each runtime, the newest first. Empty if none was made.',
      access: 'admin',
      tag,
      params: PlatformParams,
      answers: { 200: { description: 'The last reports', schema: EnforcementReportListSchema } },
      handle: async ({ json, principal, params }) =>
        json({ reports: await enforcement.reports(principal, params.name) }),
    }),
    route({
      method: 'post',
      path: '/v1/platforms/{name}/enforcement',
      name: 'runEnforcementReport',
      summary: 'Try from inside a sandbox what a platform enforces',
      description:
        'Makes a sandbox, tries some two hundred ways out of it and limits of it, removes it, and keeps the report. It takes a minute or two, and one report is made at a time.',
      budget: 'helper',
      access: 'admin',
      tag,
      params: PlatformParams,
      body: RunEnforcementSchema,
      answers: { 200: { description: 'The report', schema: EnforcementReportSchema } },
      handle: async ({ json, principal, params, body, signal }) =>
        json(await enforcement.run(principal, params.name, body, { signal })),
    }),
  ];
}
