import type { Logger } from 'pino';
import type { Route } from '../http/route.ts';
import { auditRoutes } from './audit.ts';
import { backupRoutes } from './backup.ts';
import { bucketRoutes } from './buckets.ts';
import { buildRoutes } from './builds.ts';
import { commandRoutes } from './commands.ts';
import { comparisonRoutes } from './comparison.ts';
import { enforcementRoutes } from './enforcement.ts';
import { eventRoutes } from './events.ts';
import { execRoutes } from './exec.ts';
import { fileChangeRoutes } from './file-changes.ts';
import { fileRoutes } from './files.ts';
import { imageRoutes } from './images.ts';
import { interpreterRoutes } from './interpreter.ts';
import { keyRoutes } from './keys.ts';
import { mcpRoutes } from '../mcp/mcp-routes.ts';
import { networkRoutes } from './network.ts';
import { portRoutes } from './ports.ts';
import { projectRoutes } from './projects.ts';
import { sandboxRoutes } from './sandboxes.ts';
import { secretRoutes } from './secrets.ts';
import { snapshotRoutes } from './snapshots.ts';
import { socketRoutes } from './sockets.ts';
import { statsRoutes } from './stats.ts';
import { statusRoutes } from './status.ts';
import { systemRoutes, type SystemOptions } from './system.ts';
import { templateRoutes } from './templates.ts';
import { toolRoutes } from './tools.ts';
import { travelRoutes } from './travel.ts';
import { volumeRoutes } from './volumes.ts';
import { webhookRoutes } from './webhooks.ts';

export interface RestOptions extends SystemOptions {
  log: Logger;
  /** Origins whose pages may use `/mcp`; `*` for all. */
  corsOrigins: readonly string[];
}

/** All routes of our API. The OpenAPI document has them in this order. */
export function restRoutes(options: RestOptions): Route[] {
  const { control, corsOrigins, log, version } = options;
  return [
    ...systemRoutes(options),
    ...sandboxRoutes(control),
    ...snapshotRoutes(control),
    ...travelRoutes(control),
    ...comparisonRoutes(control),
    ...templateRoutes(control),
    ...buildRoutes(control),
    ...imageRoutes(control),
    ...volumeRoutes(control),
    ...bucketRoutes(control),
    ...execRoutes(control),
    ...commandRoutes(control),
    ...interpreterRoutes(control),
    ...statusRoutes(control),
    ...fileRoutes(control),
    ...toolRoutes(control),
    ...mcpRoutes({
      control,
      version,
      corsOrigins,
      onError: (error) => log.debug({ err: error }, 'mcp'),
    }),
    ...fileChangeRoutes(control),
    ...portRoutes(control),
    ...socketRoutes(control),
    ...statsRoutes(control),
    ...networkRoutes(control),
    ...secretRoutes(control),
    ...enforcementRoutes(control),
    ...eventRoutes(control),
    ...auditRoutes(control),
    ...webhookRoutes(control),
    ...backupRoutes(control),
    ...keyRoutes(control),
    ...projectRoutes(control),
  ];
}
