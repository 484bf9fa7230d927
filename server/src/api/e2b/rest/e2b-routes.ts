import type { Route } from '../../http/route.ts';
import { observeRoutes } from './observe-routes.ts';
import { sandboxRoutes } from './sandbox-routes.ts';
import type { E2bRouteOptions } from './starting-routes.ts';
import { snapshotRoutes } from './snapshot-routes.ts';
import { listRoutes } from './templates/list-routes.ts';
import { tagRoutes } from './templates/tag-routes.ts';
import { volumeRoutes } from './volume-routes.ts';
import { templateRoutes, type TemplateRouteOptions } from './templates/template-routes.ts';

export interface RouteParts {
  routing: E2bRouteOptions;
  building: TemplateRouteOptions;
}

/** All routes that need an API key. If two match a path, the first is used. */
export function e2bRoutes({ routing, building }: RouteParts): Route[] {
  return [
    ...templateRoutes(building),
    ...tagRoutes(building),
    ...listRoutes(building),
    ...observeRoutes(routing),
    ...sandboxRoutes(routing),
    ...snapshotRoutes(routing),
    ...volumeRoutes(routing),
  ];
}
