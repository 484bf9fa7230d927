/** What the carried connections of each project take, for as long as it has sandboxes. */
import type { Clock } from '../../lib/clock.ts';
import { Window } from './budget.ts';
import { type CarryLimits, ProjectConnections } from './project-connections.ts';

export interface ProjectCarriage {
  /** Of one more sandbox of the project. */
  join(project: string): ProjectConnections;
  /** A sandbox that had joined is gone. */
  leave(one: ProjectConnections): void;
  /** How long lookups of its sandboxes have taken within the last minute, in milliseconds. */
  lookups(one: ProjectConnections): Window;
  /** How many have joined. */
  sandboxes(project: string): number;
  limit(project: string, limits: CarryLimits): void;
  taken(project: string): { connections: number; bytes: number };
  refused(): number;
  close(): void;
}

/** For projects that no limits were set for. */
const DEFAULT_LIMITS: CarryLimits = { connections: 4096, bytes: 128 * 1024 * 1024 };
const TICK_MS = 250;

export function projectCarriage(clock: Clock): ProjectCarriage {
  const projects = new Map<string, { connections: ProjectConnections; sandboxes: number }>();
  const lookups = new WeakMap<ProjectConnections, Window>();
  const names = new WeakMap<ProjectConnections, string>();
  const limits = new Map<string, CarryLimits>();
  let refusedBefore = 0;
  const timer = setInterval(() => {
    for (const { connections } of projects.values()) connections.tick();
  }, TICK_MS).unref();
  return {
    join(project) {
      let one = projects.get(project);
      if (!one) {
        const connections = new ProjectConnections(limits.get(project) ?? DEFAULT_LIMITS, () =>
          clock.steady(),
        );
        projects.set(project, (one = { connections, sandboxes: 0 }));
        names.set(connections, project);
        lookups.set(connections, new Window(clock));
      }
      one.sandboxes++;
      return one.connections;
    },
    leave(connections) {
      const project = names.get(connections);
      const one = project === undefined ? undefined : projects.get(project);
      if (project === undefined || !one || --one.sandboxes > 0) return;
      projects.delete(project);
      limits.delete(project);
      refusedBefore += connections.refused;
    },
    lookups: (connections) => lookups.get(connections)!,
    sandboxes: (project) => projects.get(project)?.sandboxes ?? 1,
    limit(project, given) {
      const one = projects.get(project);
      limits.set(project, given);
      if (one) one.connections.limits = given;
    },
    taken(project) {
      const { connections = 0, bytes = 0 } = projects.get(project)?.connections ?? {};
      return { connections, bytes };
    },
    refused: () =>
      [...projects.values()].reduce((sum, { connections }) => sum + connections.refused, refusedBefore),
    close: () => clearInterval(timer),
  };
}
